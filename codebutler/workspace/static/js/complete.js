// Completion in the composer: slash commands, !words, people, emoji. Tab takes the first one.

import { tag, uniqueId } from "./dom.js";
import { emoji, emojiLike } from "./emoji.js";

const MOST = 8;

export class Completion {
  /** Watches `box`; `model` has the candidates. */
  constructor(box, model) {
    this.box = box;
    this.model = model;
    this.found = [];
    this.at = -1;
    this.list = Object.assign(tag("ul", "completion"), { hidden: true, id: uniqueId("completion") });
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Completions");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", this.list.id);
    box.addEventListener("input", () => this.#look());
    box.addEventListener("blur", () => this.close());
  }

  /** Whether a key was meant for the list. */
  takes(event) {
    if (this.list.hidden) return false;
    const { key, shiftKey } = event;
    if (key === "ArrowDown" || key === "ArrowUp") this.#move(key === "ArrowDown" ? 1 : -1);
    else if (key === "Tab" && !shiftKey) this.#accept(Math.max(0, this.at));
    else if (key === "Enter" && this.at >= 0) this.#accept(this.at);
    else if (key === "Escape") this.close();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  close() {
    this.found = [];
    this.#draw();
  }

  #look() {
    const before = this.box.value.slice(0, this.box.selectionStart);
    this.start = before;
    this.at = -1;
    this.found = this.#candidates(before).filter((one) => one.text.trimEnd() !== before).slice(0, MOST);
    this.#draw();
  }

  #candidates(before) {
    const { commands, words } = this.model.offers;
    const command = commands.find((known) => before.startsWith(`${known.command} `));
    if (command) return starting(command.words, before.slice(command.command.length + 1), `${command.command} `);
    if (/^\/\S*$/.test(before)) {
      const own = commands.filter((known) => known.command.startsWith(before));
      return own.map((known) => ({ text: `${known.command} `, label: known.command, hint: known.description || known.usage_hint }));
    }
    if (/^!\S*$/.test(before)) return starting(words, before.slice(1), "!");
    return this.#inside(before);
  }

  #inside(before) {
    const person = before.match(/(?:^|\s)@([\w.-]*)$/);
    const sign = before.match(/(?:^|\s):([a-z0-9_+-]{2,})$/);
    const head = (match) => before.slice(0, before.length - match[1].length);
    if (person) {
      const like = [...this.model.users.values()].filter(({ name }) => /^\w+$/.test(name) && name.toLowerCase().startsWith(person[1].toLowerCase()));
      return like.map(({ name, is_bot: isBot }) => ({ text: `${head(person)}${name} `, label: `@${name}`, hint: isBot ? "app" : "" }));
    }
    if (!sign) return [];
    return emojiLike(sign[1]).map(([name]) => ({ text: `${head(sign).slice(0, -1)}${emoji(name)} `, label: `${emoji(name)} :${name}:`, hint: "" }));
  }

  #move(by) {
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.#draw();
  }

  #accept(at) {
    const { text } = this.found[at];
    const rest = this.box.value.slice(this.start.length);
    this.box.value = text + rest;
    this.box.setSelectionRange(text.length, text.length);
    this.close();
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #draw() {
    this.list.hidden = !this.found.length;
    this.list.replaceChildren(...this.found.map((one, at) => {
      const item = Object.assign(tag("li", "", tag("strong", "", one.label), tag("span", "", one.hint)), { id: `${this.list.id}-${at}` });
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(at === this.at));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); this.#accept(at); });
      return item;
    }));
    if (this.at >= 0) this.box.setAttribute("aria-activedescendant", `${this.list.id}-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }
}

const starting = (words, start, head) => Object.entries(words)
  .filter(([word]) => word.startsWith(start.toLowerCase()))
  .map(([word, hint]) => ({ text: `${head}${word} `, label: `${head}${word}`, hint }));
