// A list of messages that follows the model: draws what is missing, replaces what changed, keeps to the bottom.

const NEAR_BOTTOM_PX = 80;

export class MessageList {
  /** `select` gives the messages to show now; `inThread` as in MessageView. */
  constructor(root, view, select, inThread) {
    this.root = root;
    this.view = view;
    this.select = select;
    this.inThread = inThread;
    this.root.addEventListener("grown", () => this.#follow(this.#nearBottom(600)));
  }

  /** Draw everything anew and show the newest. */
  draw(empty) {
    const messages = this.select();
    this.root.replaceChildren(...messages.map((message) => this.view.item(message, this.inThread)));
    if (!messages.length && empty) this.root.append(empty);
    this.#follow(true);
  }

  /** One message came, changed or went. */
  refresh(ts) {
    const stay = this.#nearBottom(NEAR_BOTTOM_PX);
    const message = this.select().find((m) => m.ts === ts);
    const old = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
    if (!message) old?.remove();
    else if (old) old.replaceWith(this.view.item(message, this.inThread));
    else this.#insert(message);
    this.#follow(stay);
  }

  #insert(message) {
    this.root.querySelector(".empty")?.remove();
    const item = this.view.item(message, this.inThread);
    const later = [...this.root.children].find((child) => child.dataset.ts > message.ts);
    this.root.insertBefore(item, later || null);
  }

  #nearBottom(margin) {
    return this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < margin;
  }

  #follow(stay) {
    if (stay) this.root.scrollTop = this.root.scrollHeight;
  }
}
