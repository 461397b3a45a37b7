// Where a person writes. Nothing typed is lost: the text stays until the workspace has it, drafts stay per place.

export class Composer {
  /** `send` takes the text and resolves when it was accepted. */
  constructor(root, send) {
    this.send = send;
    this.drafts = new Map();
    this.place = "";
    this.form = document.createElement("form");
    this.form.className = "composer";
    this.box = Object.assign(document.createElement("textarea"), { rows: 1 });
    this.hint = Object.assign(document.createElement("span"), { className: "hint" });
    this.button = Object.assign(document.createElement("button"), { type: "submit", textContent: "Send", disabled: true });
    const row = document.createElement("div");
    row.append(this.hint, this.button);
    this.form.append(this.box, row);
    root.append(this.form);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.box.addEventListener("input", () => this.#grow());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.#say("Enter sends, Shift+Enter starts a new line");
  }

  /** Go to another channel or thread, keeping the draft of the one left. */
  moveTo(place, placeholder) {
    this.drafts.set(this.place, this.box.value);
    this.place = place;
    this.box.value = this.drafts.get(place) || "";
    this.box.placeholder = placeholder;
    this.box.setAttribute("aria-label", placeholder);
    this.#grow();
  }

  focus() {
    this.box.focus({ preventScroll: true });
  }

  #key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#submit();
    }
  }

  async #submit() {
    const text = this.box.value;
    if (!text.trim() || this.box.readOnly) return;
    this.box.readOnly = true;
    try {
      await this.send(text);
      this.box.value = "";
      this.#say("Enter sends, Shift+Enter starts a new line");
    } catch (error) {
      this.#say(`Not sent (${error.message}). Your text is still here; try again.`, true);
    }
    this.box.readOnly = false;
    this.#grow();
  }

  #say(text, isError = false) {
    this.hint.textContent = text;
    this.hint.classList.toggle("error", isError);
  }

  #grow() {
    this.button.disabled = !this.box.value.trim();
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
  }
}
