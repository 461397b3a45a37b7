// Messages that could not be sent because the workspace did not answer: kept in order, retried automatically, and shown
// above the composer until they are sent. The workspace recognizes each by its id, so that one whose answer was lost is
// not posted twice.

import { button, tag } from "./dom.js";
import { placeOf } from "./drafts.js";
import { words } from "./words.js";

const AGAIN_MS = 4000;
const STORE = "unsent";

/** Whether there was no answer, as opposed to a refusal. */
export const isSilence = (error) => error instanceof TypeError || error.name === "TimeoutError" || error.name === "AbortError";

export class Outbox extends EventTarget {
  #busy = false;

  /** `post` sends one message {id, channel, thread, text}. `key` identifies this start of the workspace: messages for
   * an earlier one become drafts. */
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

  /** Send it now or, if there is no answer or others wait before it, later. Throws the workspace's refusal. */
  async send(message) {
    if (this.waiting.length) return this.#keep(message);
    try {
      return await this.post(message);
    } catch (error) {
      if (!isSilence(error)) throw error;
      return this.#keep(message);
    }
  }

  /** Retry the waiting messages, oldest first, until there is no answer. */
  async flush() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      for (const message of this.waiting.filter(({ refused }) => !refused)) if (!(await this.#isOver(message))) break;
    } finally {
      this.#busy = false;
    }
  }

  /** The waiting messages of a channel or thread, as a list. */
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
      // If storage is full, only the page keeps them.
    }
    this.dispatchEvent(new Event("changed"));
  }
}
