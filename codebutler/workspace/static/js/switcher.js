// Ctrl+K: go to a channel, a person or the app's home, or to a message by its words.

import { tag, uniqueId } from "./dom.js";
import { day, time, typed, unmarked } from "./text.js";
import { words } from "./words.js";

const SEARCH_MS = 200;
const MOST_PLACES = 7;

export class Switcher {
  /** `go` takes {channel} | {home} | {user} | {shortcut} | {channel, ts, thread}. */
  constructor(api, model, go) {
    Object.assign(this, { api, model, go });
    this.box = tag("dialog", "switcher");
    this.box.setAttribute("aria-label", "Jump or search");
    this.input = Object.assign(tag("input", ""), { type: "text", placeholder: "Jump to a channel, or search messages", autocomplete: "off" });
    this.list = Object.assign(tag("ul", "found-list"), { id: uniqueId("found") });
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Found");
    const help = tag("p", "note", "Narrow a search with in:#channel and from:@name. Enter opens, Escape closes.");
    this.state = Object.assign(tag("p", "note"), { role: "status" });
    for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "true", "aria-controls": this.list.id, "aria-label": "Jump or search", "aria-autocomplete": "list" })) this.input.setAttribute(name, value);
    this.box.append(this.input, this.list, this.state, help);
    document.body.append(this.box);
    this.input.addEventListener("input", () => this.#look());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("pointerdown", (event) => { if (event.target === this.box) this.box.close(); });
  }

  open(text = "") {
    if (this.box.open) return;
    this.input.value = text;
    this.box.showModal();
    this.input.focus();
    this.#look();
  }

  #look() {
    const text = this.input.value.trim();
    this.found = this.#places(text.replace(/^[#@]/, "").toLowerCase());
    this.at = 0;
    this.state.textContent = "";
    this.#draw();
    clearTimeout(this.waiting);
    if (text.length > 1) this.waiting = setTimeout(() => this.#search(text), SEARCH_MS);
  }

  #places(text) {
    const { model } = this;
    const channels = [...model.channels.values()].filter((channel) => !channel.is_im).map((channel) => (
      { name: `# ${channel.name}`, hint: channel.is_archived ? "archived" : "", channel: channel.id }));
    const app = { name: model.bot.name, hint: "home", home: true };
    const people = [...model.users.values()].filter(({ id }) => id !== model.me.id).map((user) => (
      { name: user.name, hint: user.is_bot ? "app, direct" : "direct", user: user.id }));
    const shortcuts = model.offers.shortcuts.filter((one) => !one.on_message).map((one) => ({ name: one.name, hint: "shortcut", shortcut: one.callback_id }));
    return [...channels, app, ...people, ...shortcuts].filter(({ name }) => name.toLowerCase().includes(text)).slice(0, MOST_PLACES);
  }

  async #search(text) {
    try {
      const { messages } = await this.api.call("search.messages", { query: text, count: 12 });
      if (text !== this.input.value.trim()) return;
      this.found.push(...messages.matches.map((match) => this.#match(match)));
      this.state.textContent = messages.total ? `${messages.total} message${messages.total === 1 ? "" : "s"}` : `No message contains “${text}”.`;
    } catch (error) {
      this.state.textContent = words(error);
    }
    this.#draw();
  }

  #match(match) {
    const inBlocks = match.blocks?.map((block) => block.text?.text || (typeof block.text === "string" ? block.text : "")).join(" ").trim();
    const said = inBlocks || match.text || match.files?.[0]?.name || "";
    const place = this.model.channels.has(match.channel.id) ? this.model.channelName(match.channel.id, "#") : match.channel.name;
    const thread = match.thread_ts && match.thread_ts !== match.ts ? match.thread_ts : null;
    return { name: unmarked(typed(this.#named(String(said)))).slice(0, 160), hint: `${match.username} in ${place}, ${day(match.ts)} ${time(match.ts)}`, channel: match.channel.id, ts: match.ts, thread };
  }

  /** Mentions by name. */
  #named(text) {
    const { model } = this;
    return text
      .replace(/<@(\w+)>/g, (_, id) => `@${model.userName(id)}`)
      .replace(/<#(\w+)[^>]*>/g, (_, id) => (model.channels.has(id) ? model.channelName(id, "#") : `#${id}`));
  }

  #key(event) {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      this.at = (this.at + (key === "ArrowDown" ? 1 : -1) + this.found.length) % Math.max(1, this.found.length);
      this.#draw();
    } else if (key === "Enter" && this.found[this.at]) this.#choose(this.found[this.at]);
    else return;
    event.preventDefault();
  }

  #choose(place) {
    this.box.close();
    this.go(place);
  }

  #draw() {
    this.list.replaceChildren(...this.found.map((place, at) => {
      const item = Object.assign(tag("li", place.ts ? "match" : "", tag("strong", "", place.name), tag("span", "", place.hint)), { id: `${this.list.id}-${at}` });
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(at === this.at));
      item.addEventListener("click", () => this.#choose(place));
      return item;
    }));
    if (this.found.length) this.input.setAttribute("aria-activedescendant", `${this.list.id}-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
    this.list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }
}
