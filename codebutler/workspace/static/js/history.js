// Earlier messages: fetched a page at a time, newest first, older ones on demand.

const PAGE = 100;
const REPLIES = 500;
const MOST_PAGES = 30;

export class History {
  constructor(api, model) {
    this.api = api;
    this.model = model;
    this.before = new Map(); // channel -> where the next older page begins; "" if there is none
  }

  hasOlder(channel) {
    return Boolean(this.before.get(channel));
  }

  /** The newest messages of a channel, and whether there is a gap before the known ones: then older ones are dropped.
   * */
  async newest(channel) {
    const known = this.model.roots(channel).at(-1)?.ts || "";
    const answer = await this.#page(channel, "");
    const oldest = answer.messages.at(-1)?.ts || "";
    const cursor = answer.response_metadata?.next_cursor || "";
    if (!this.before.has(channel)) this.before.set(channel, cursor);
    else if (cursor && known && oldest > known) {
      this.model.forgetBefore(channel, oldest);
      this.before.set(channel, cursor);
    }
  }

  /** Fetch one more page; returns whether there was anything. */
  async older(channel) {
    if (!this.hasOlder(channel)) return false;
    const answer = await this.#page(channel, this.before.get(channel));
    this.before.set(channel, answer.response_metadata?.next_cursor || "");
    return answer.messages.length > 0;
  }

  /** Everything back to a message. */
  async backTo(channel, ts) {
    for (let page = 0; page < MOST_PAGES && !this.model.of(channel).has(ts); page += 1) {
      if (!(await this.older(channel))) return;
    }
  }

  /** A whole thread. */
  async thread(channel, ts) {
    let cursor = "";
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const since = this.model.changes;
      const answer = await this.api.call("conversations.replies", { channel, ts, limit: REPLIES, ...(cursor && { cursor }) });
      answer.messages.forEach((message) => this.model.fetched(channel, message, since));
      cursor = answer.response_metadata?.next_cursor;
      if (!cursor) return;
    }
  }

  async #page(channel, cursor) {
    const since = this.model.changes;
    const answer = await this.api.call("conversations.history", { channel, limit: PAGE, ...(cursor && { cursor }) });
    answer.messages.forEach((message) => this.model.fetched(channel, message, since));
    return answer;
  }
}
