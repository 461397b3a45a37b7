// Messages on the screen have been read: the workspace is notified, so that other tabs and the next load know it.

const QUIET_MS = 400;

export class Reading {
  #told = new Map();
  #timer = 0;

  constructor(api, model) {
    Object.assign(this, { api, model });
    model.addEventListener("navigation", () => this.#soon());
    model.addEventListener("message", () => this.#soon());
    addEventListener("focus", () => this.#soon());
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tell(), QUIET_MS);
  }

  #tell() {
    const { channel, atHome } = this.model;
    if (atHome || !document.hasFocus() || !this.model.channels.get(channel)) return;
    const ts = this.model.newest(channel);
    if (!ts || ts <= (this.#told.get(channel) || "")) return;
    this.#told.set(channel, ts);
    // A failure loses nothing: the next message or view reports it again.
    this.api.call("conversations.mark", { channel, ts }).catch(() => this.#told.delete(channel));
  }
}
