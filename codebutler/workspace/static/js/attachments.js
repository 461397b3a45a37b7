// The files a person is about to send: chosen, dropped or pasted, shown as chips that can be taken away.

const size = (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

export class Attachments {
  #files = [];

  /** `changed` is called after every change. */
  constructor(changed) {
    this.changed = changed;
    this.input = Object.assign(document.createElement("input"), { type: "file", multiple: true, hidden: true });
    this.button = Object.assign(document.createElement("button"), { type: "button", className: "tool", textContent: "📎" });
    this.button.title = "Attach files";
    this.button.setAttribute("aria-label", "Attach files");
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

  /** Take what is dropped on or pasted into an element. */
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
      const remove = Object.assign(document.createElement("button"), { type: "button", textContent: "✕" });
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      remove.addEventListener("click", () => { this.files = this.#files.filter((other) => other !== file); this.changed(); });
      item.append(Object.assign(document.createElement("span"), { textContent: file.name }), ` ${size(file.size)}`, remove);
      return item;
    }));
  }
}
