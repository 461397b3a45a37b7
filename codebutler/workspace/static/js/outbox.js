// Messages that could not be sent because the workspace did not answer: kept in their order, tried again by
// themselves, shown above the box until they are out. Each has an id by which the workspace knows it again, so that
// one whose answer was lost is not posted twice.

import { button, tag } from "./dom.js";
import { placeOf } from "./drafts.js";
import { words } from "./words.js";

const AGAIN_MS = 4000;
const STORE = "unsent";

/** Whether nobody answered, as opposed to a refusal. */
export const isSilence = (error) => error instanceof TypeError || error.name === "TimeoutError" || error.name === "AbortError";

export class Outbox extends EventTarget {
  #busy = false;

  /** `post` sends one message {id, channel, thread, text}. `key` is of this start of the workspace: what was
   * meant for an earlier one becomes a draft. */
  constructor(post, drafts, key) {
    super();
    Object.assign(this, { post, drafts, key, waiting: [] });
    const kept = JSON.parse(sessionStorage.getItem(STORE) || "null");
    if (kept?.key === key) this.waiting = kept.messages;
    else (kept?.messages || []).reverse().forEach(({ channel, thread, text }) => drafts.giveBack(placeOf(channel, thread), text));
    this.#changed();
    setInterval(() => this.flush(), AGAIN_MS);
    addEventListener("online", () => this.flush());
  }

  /** Send it now or, if nobody answers or others wait before it, later. Throws what the workspace refuses with. */
  async send(message) {
    if (this.waiting.length) return this.#keep(message);
    try {
      return await this.post(message);
    } catch (error) {
      if (!isSilence(error)) throw error;
      return this.#keep(message);
    }
  }

  /** Try what waits, the oldest first, until nobody answers. */
  async flush() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (const message of this.waiting.filter(({ refused }) => !refused)) if (!(await this.#isOver(message))) break;
    } finally {
      this.#busy = false;
    }
  }

  /** What waits in a channel or thread, as a list that is empty when nothing does. */
  list(place) {
    const here = this.waiting.filter(({ channel, thread }) => placeOf(channel, thread) === place);
    return here.map((message) => {
      const state = tag("small", "", message.refused ? `Not sent. ${message.refused}` : "Not sent yet: waiting for the workspace…");
      const back = button("Cancel", "link", () => this.#takeBack(message), `Cancel: ${message.text.slice(0, 40)}`);
      return tag("li", "", tag("span", "text", message.text), tag("span", "state", state, back));
    });
  }

  async #isOver(message) {
    try {
      await this.post(message);
      this.#drop(message);
      return true;
    } catch (error) {
      if (isSilence(error)) return false;
      message.refused = words(error);
      this.#changed();
      return true;
    }
  }

  #keep(message) {
    this.waiting.push(message);
    this.#changed();
    return null;
  }

  #drop(message) {
    this.waiting = this.waiting.filter((other) => other !== message);
    this.#changed();
  }

  #takeBack(message) {
    this.#drop(message);
    const place = placeOf(message.channel, message.thread);
    this.drafts.giveBack(place, message.text);
    this.dispatchEvent(new CustomEvent("back", { detail: place }));
  }

  #changed() {
    try {
      sessionStorage.setItem(STORE, JSON.stringify({ key: this.key, messages: this.waiting }));
    } catch {
      // A full store keeps nothing; the page still does.
    }
    this.dispatchEvent(new Event("changed"));
  }
}
