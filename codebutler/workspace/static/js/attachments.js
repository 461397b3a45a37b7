// The files a person is about to send: chosen, dropped or pasted, shown as chips that can be removed.

import { button, icon } from "./dom.js";
import { size } from "./text.js";

export class Attachments {
  #files = [];

  /** `changed` is called after every change. */
  constructor(changed) {
    this.changed = changed;
    this.input = Object.assign(document.createElement("input"), { type: "file", multiple: true, hidden: true });
    this.button = button(icon("attach"), "tool", null, "Attach files");
    this.button.append(this.input);
    this.list = Object.assign(document.createElement("ul"), { className: "attachments", hidden: true });
    this.button.addEventListener("click", (event) => { if (event.target !== this.input) this.input.click(); });
    this.input.addEventListener("change", () => { this.#add(this.input.files); this.input.value = ""; });
  }

  get files() {
    return this.#files;
  }

  set files(files) {
    this.#files = files;
    this.#draw();
  }

  /** Take files that are dropped on or pasted into an element. */
  takeFrom(element) {
    element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      element.classList.add("dropping");
    });
    element.addEventListener("dragleave", (event) => { if (!element.contains(event.relatedTarget)) element.classList.remove("dropping"); });
    element.addEventListener("drop", (event) => {
      element.classList.remove("dropping");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.#add(event.dataTransfer.files);
    });
    element.addEventListener("paste", (event) => { if (event.clipboardData.files.length) { event.preventDefault(); this.#add(event.clipboardData.files); } });
  }

  #add(files) {
    this.files = [...this.#files, ...files];
    this.changed();
  }

  #draw() {
    this.list.hidden = !this.#files.length;
    this.list.replaceChildren(...this.#files.map((file) => {
      const item = document.createElement("li");
      const forget = () => { this.files = this.#files.filter((other) => other !== file); this.changed(); };
      const remove = button(icon("close"), "", forget, `Remove ${file.name}`);
      item.append(Object.assign(document.createElement("span"), { textContent: file.name }), ` ${size(file.size)}`, remove);
      return item;
    }));
  }
}
