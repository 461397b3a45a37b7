// A list of messages that follows the model: draws what is missing, replaces what changed, keeps to the bottom.

import { reachable, tag } from "./dom.js";
import { day } from "./text.js";
import { rove, walkable } from "./walk.js";

const NEAR_BOTTOM_PX = 80;
const NEAR_TOP_PX = 120;
const QUIET_MS = 500;
const ONE_BREATH_S = 300;

export class MessageList {
  /** `select` gives the messages to show now; `inThread` as in MessageView; `atTop` is called by whoever gets there. */
  constructor(root, view, select, inThread, atTop = () => undefined) {
    this.root = root;
    this.view = view;
    this.select = select;
    this.inThread = inThread;
    this.atBottom = true;
    this.root.addEventListener("scroll", () => {
      this.atBottom = this.#nearBottom();
      if (this.root.scrollTop < NEAR_TOP_PX && !this.atBottom) atTop();
    }, { passive: true });
    this.root.addEventListener("grown", ({ target }) => { reachable(target); this.#follow(); });
    walkable(this.root);
    new ResizeObserver(() => this.#follow()).observe(this.root);
  }

  /** Draw everything anew and show the newest; `unreadSince` is the ts of the first message not seen yet. */
  draw(empty, unreadSince = "") {
    this.#fill(empty, unreadSince);
    this.#toBottom();
  }

  /** Draw older messages above what is seen, which stays where it is. */
  drawAbove(unreadSince) {
    const below = this.root.scrollHeight - this.root.scrollTop;
    this.#fill(null, unreadSince);
    this.root.scrollTop = this.root.scrollHeight - below;
  }

  /** What comes is read aloud, but not a whole list that is drawn anew. */
  #fill(empty, unreadSince) {
    this.root.setAttribute("aria-live", "off");
    setTimeout(() => this.root.setAttribute("aria-live", "polite"), QUIET_MS);
    const messages = this.select();
    let shownDay = "";
    let isMarked = !unreadSince;
    const items = messages.flatMap((message) => {
      const before = [];
      if (!this.inThread && day(message.ts) !== shownDay) before.push(divider((shownDay = day(message.ts)), "day"));
      if (!isMarked && message.ts >= unreadSince) before.push(divider("New messages", "new"));
      isMarked ||= message.ts >= unreadSince;
      return [...before, this.view.item(message, this.inThread)];
    });
    this.root.replaceChildren(...items);
    if (!messages.length && empty) this.root.append(empty);
    this.#countReplies();
    reachable(this.root);
    this.#group();
  }

  /** One message came, changed or went; `show` it even to somebody who has scrolled up. */
  refresh(ts, show = false) {
    const message = this.select().find((m) => m.ts === ts);
    const old = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
    if (!message) old?.remove();
    else if (old) this.#replace(old, message);
    else this.#insert(message);
    if (message) reachable(this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`));
    this.#countReplies();
    this.#group();
    if (show) this.#toBottom();
    else this.#follow();
  }

  /** Between what began a thread and its answers stands how many there are. */
  #countReplies() {
    if (!this.inThread) return;
    this.root.querySelector(".divider.count")?.remove();
    const count = this.root.querySelectorAll(":scope > .message").length - 1;
    if (count > 0) this.root.querySelector(".message").after(divider(count === 1 ? "1 reply" : `${count} replies`, "count"));
  }

  /** Who goes on speaking is not named again. */
  #group() {
    let before = null;
    for (const item of this.root.children) {
      const { author, ts, named } = item.dataset;
      item.classList.toggle("follows", Boolean(author) && named === undefined && before?.author === author && Number(ts) - Number(before.ts) < ONE_BREATH_S);
      before = item.dataset;
    }
  }

  /** Bring a message into view and make it stand out. */
  reveal(ts) {
    const item = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
    if (!item) return;
    item.scrollIntoView({ block: "center" });
    item.classList.add("found");
    setTimeout(() => item.classList.remove("found"), 2500);
  }

  /** Whoever has the focus in a message keeps it when the message is drawn again. */
  #replace(old, message) {
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const item = this.view.item(message, this.inThread);
    old.replaceWith(item);
    if (!focused) return;
    rove(item, true);
    const kind = ["action", "tool", "reaction"].find((name) => focused.dataset[name]);
    const again = kind && item.querySelector(`[data-${kind}="${CSS.escape(focused.dataset[kind])}"]`);
    (again || item).focus({ preventScroll: true });
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

function divider(text, className) {
  return tag("li", `divider ${className}`, tag("span", "", text));
}
