// A list of messages that follows the model: adds new ones, replaces changed ones, stays at the bottom. Only the newest
// are in the document, and older ones on demand: a channel may have thousands.

import { button, reachable, tag } from "./dom.js";
import { day } from "./text.js";
import { rove, walkable } from "./walk.js";

const NEAR_BOTTOM_PX = 80;
const NEAR_TOP_PX = 120;
const QUIET_MS = 500;
const ONE_BREATH_S = 300;
const WINDOW = 200;
const MORE = 100;
// Changes within one frame are drawn together; if there are more than this, the whole list is redrawn.
const FRAME_MS = 16;
const MANY = 40;

export class MessageList {
  #changed = new Map(); // ts -> whether to show it
  #timer = 0;
  #size = WINDOW;

  /** `select` returns the known messages; `inThread` as in MessageView; `atTop` is called when all of them are drawn
   * and somebody scrolls up for older ones. */
  constructor(root, view, select, inThread, atTop = () => undefined) {
    this.root = root;
    this.view = view;
    this.select = select;
    this.inThread = inThread;
    this.atBottom = true;
    this.unreadSince = "";
    this.news = Object.assign(button("New messages ↓", "news", () => this.#toBottom()), { hidden: true });
    this.root.after(this.news);
    this.root.addEventListener("scroll", () => {
      this.atBottom = this.#nearBottom();
      if (this.atBottom) this.news.hidden = true;
      if (this.root.scrollTop < NEAR_TOP_PX && !this.atBottom) this.#older(atTop);
    }, { passive: true });
    this.root.addEventListener("grown", ({ target }) => { reachable(target); this.#follow(); });
    walkable(this.root);
    new ResizeObserver(() => this.#follow()).observe(this.root);
  }

  /** Redraw everything and show the newest or, if it `stays`, what is read now; `unreadSince` is the ts of the first
   * unread message. With `upTo` that message is drawn, too, however old it is. */
  draw(empty, { unreadSince = "", upTo = "", stays = false } = {}) {
    this.unreadSince = unreadSince;
    const first = stays ? this.#firstVisible() : null;
    const place = this.#place(first);
    const oldest = first?.dataset.ts || upTo;
    const wanted = oldest ? this.select().filter(({ ts }) => ts >= oldest).length : 0;
    this.#size = Math.max(WINDOW, wanted);
    this.#fill(empty);
    if (!place()) this.#toBottom();
  }

  /** Draw older messages above the visible ones, which stay in place. */
  drawAbove() {
    this.#size = this.root.querySelectorAll(":scope > .message").length + MORE;
    const below = this.root.scrollHeight - this.root.scrollTop;
    this.#fill(null);
    this.root.scrollTop = this.root.scrollHeight - below;
  }

  /** A message was added, changed or removed; `show` it even if the person has scrolled up. */
  refresh(ts, show = false) {
    this.#changed.set(ts, show || this.#changed.get(ts));
    this.#timer ||= setTimeout(() => this.#flush(), FRAME_MS);
  }

  #older(atTop) {
    const known = this.select().length;
    if (known > this.root.querySelectorAll(":scope > .message").length) this.drawAbove();
    else atTop();
  }

  /** The messages of the window; a thread's first one is always among them. */
  #shown() {
    const all = this.select();
    const newest = all.slice(-this.#size);
    return this.inThread && newest.length < all.length ? [all[0], ...newest] : newest;
  }

  /** New messages are read aloud, but not a redrawn list. */
  #fill(empty) {
    this.#changed.clear();
    this.root.setAttribute("aria-live", "off");
    setTimeout(() => this.root.setAttribute("aria-live", "polite"), QUIET_MS);
    const messages = this.#shown();
    let shownDay = "";
    let isMarked = !this.unreadSince;
    const items = messages.flatMap((message) => {
      const before = [];
      if (!this.inThread && day(message.ts) !== shownDay) before.push(divider((shownDay = day(message.ts)), "day"));
      if (!isMarked && message.ts >= this.unreadSince) before.push(divider("New messages", "new"));
      isMarked ||= message.ts >= this.unreadSince;
      return [...before, this.view.item(message, this.inThread)];
    });
    this.root.replaceChildren(...items);
    if (!messages.length && empty) this.root.append(empty);
    this.#countReplies();
    reachable(this.root);
    this.#group();
  }

  /** Draw the changes; older messages that a person is reading stay in place. */
  #flush() {
    this.#timer = 0;
    const changed = [...this.#changed].sort();
    this.#changed.clear();
    const shown = changed.some(([, show]) => show);
    const place = this.#place();
    if (changed.length > MANY && this.atBottom) this.#fill(null);
    else this.#redraw(changed.map(([ts]) => ts));
    if (shown) this.#toBottom();
    else if (this.atBottom) this.#follow();
    else place();
  }

  #redraw(changed) {
    const known = new Map(this.select().map((message) => [message.ts, message]));
    const [oldest] = this.#shown();
    for (const ts of changed) {
      const message = known.get(ts);
      const old = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
      if (!message) old?.remove();
      else if (old) this.#replace(old, message);
      else if (!oldest || ts >= oldest.ts) this.#insert(message);
    }
    if (this.atBottom) this.#trim();
    this.#countReplies();
    reachable(this.root);
    this.#group();
  }

  /** Remove messages far above the bottom, which nobody looks at. */
  #trim() {
    const drawn = this.root.querySelectorAll(":scope > .message").length;
    if (drawn < WINDOW + MORE || this.root.contains(document.activeElement)) return;
    this.#size = WINDOW;
    this.#fill(null);
  }

  /** The first message that somebody who has scrolled up sees. */
  #firstVisible() {
    const { top } = this.root.getBoundingClientRect();
    return this.atBottom ? null : [...this.root.children].find((child) => child.dataset.ts && child.getBoundingClientRect().bottom > top);
  }

  /** Returns a function that restores the scroll position: the first visible message stays in place, if it still exists. */
  #place(first = this.#firstVisible()) {
    const at = first?.getBoundingClientRect().top;
    return () => {
      const now = first && this.root.querySelector(`[data-ts="${CSS.escape(first.dataset.ts)}"]`);
      if (now) this.root.scrollTop += now.getBoundingClientRect().top - at;
      return Boolean(now);
    };
  }

  /** The number of replies, between a thread's first message and its replies. */
  #countReplies() {
    if (!this.inThread) return;
    this.root.querySelector(".divider.count")?.remove();
    const count = this.select().length - 1;
    if (count > 0) this.root.querySelector(".message").after(divider(count === 1 ? "1 reply" : `${count} replies`, "count"));
  }

  /** Consecutive messages of one author do not repeat the name. */
  #group() {
    let before = null;
    for (const item of this.root.children) {
      const { author, ts, named } = item.dataset;
      item.classList.toggle("follows", Boolean(author) && named === undefined && before?.author === author && Number(ts) - Number(before.ts) < ONE_BREATH_S);
      before = item.dataset;
    }
  }

  /** Scroll to a message and highlight it. */
  reveal(ts) {
    const item = this.root.querySelector(`[data-ts="${CSS.escape(ts)}"]`);
    if (!item) return;
    item.scrollIntoView({ block: "center" });
    item.classList.add("found");
    setTimeout(() => item.classList.remove("found"), 2500);
  }

  /** The focus in a message survives a redraw of the message. */
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

  /** Insert a message, usually at the end; a new day gets a heading before its first message. */
  #insert(message) {
    this.root.querySelector(".empty")?.remove();
    const item = this.view.item(message, this.inThread);
    let before = this.root.lastElementChild;
    while (before && !(before.dataset.ts < message.ts)) before = before.previousElementSibling;
    if (before) before.after(item);
    else this.root.prepend(item);
    if (!this.inThread && !item.nextElementSibling && (!before || day(before.dataset.ts) !== day(message.ts))) item.before(divider(day(message.ts), "day"));
    if (!this.atBottom && !item.nextElementSibling) this.news.hidden = false;
  }

  #nearBottom() {
    return this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < NEAR_BOTTOM_PX;
  }

  /** At the bottom, the view stays there, even if the list shrinks because the composer grows. */
  #follow() {
    if (this.atBottom) this.#toBottom();
  }

  #toBottom() {
    this.atBottom = this.news.hidden = true;
    this.root.scrollTop = this.root.scrollHeight;
  }
}

function divider(text, className) {
  return tag("li", `divider ${className}`, tag("span", "", text));
}
