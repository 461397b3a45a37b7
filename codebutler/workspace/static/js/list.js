// A list of messages that follows the model: draws what is missing, replaces what changed, keeps to the bottom.

const NEAR_BOTTOM_PX = 80;

export class MessageList {
  /** `select` gives the messages to show now; `inThread` as in MessageView. */
  constructor(root, view, select, inThread) {
    this.root = root;
    this.view = view;
    this.select = select;
    this.inThread = inThread;
    this.atBottom = true;
    this.root.addEventListener("scroll", () => { this.atBottom = this.#nearBottom(); }, { passive: true });
    this.root.addEventListener("grown", () => this.#follow());
    new ResizeObserver(() => this.#follow()).observe(this.root);
  }

  /** Draw everything anew and show the newest. */
  draw(empty) {
    const messages = this.select();
    this.root.replaceChildren(...messages.map((message) => this.view.item(message, this.inThread)));
    if (!messages.length && empty) this.root.append(empty);
    this.#toBottom();
  }

  /** One message came, changed or went; `show` it even to somebody who has scrolled up. */
  refresh(ts, show = false) {
    const message = this.select().find((m) => m.ts === ts);
    const old = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
    if (!message) old?.remove();
    else if (old) old.replaceWith(this.view.item(message, this.inThread));
    else this.#insert(message);
    if (show) this.#toBottom();
    else this.#follow();
  }

  #insert(message) {
    this.root.querySelector(".empty")?.remove();
    const item = this.view.item(message, this.inThread);
    const later = [...this.root.children].find((child) => child.dataset.ts > message.ts);
    this.root.insertBefore(item, later || null);
  }

  #nearBottom() {
    return this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < NEAR_BOTTOM_PX;
  }

  /** Whoever looks at the newest goes on looking at it, also when the list shrinks below a growing composer. */
  #follow() {
    if (this.atBottom) this.#toBottom();
  }

  #toBottom() {
    this.atBottom = true;
    this.root.scrollTop = this.root.scrollHeight;
  }
}
