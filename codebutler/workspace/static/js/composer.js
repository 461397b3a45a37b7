// The composer. No typed text is lost: it stays until the workspace has it, and drafts are kept per place, even if the
// page is reloaded (files cannot be kept: the page asks before it is left).

import { Attachments } from "./attachments.js";
import { Completion } from "./complete.js";
import { Recorder } from "./recorder.js";
import { words } from "./words.js";

const HINT = "Enter sends, Shift+Enter starts a new line";
const EDIT_HINT = "Enter saves the change, Escape cancels";

/** A phone's keyboard has no Shift+Enter: there Enter starts a new line and the button sends. */
export const isTouch = () => matchMedia("(pointer: coarse)").matches;

export class Composer {
  /** `send` takes the text and the files and resolves once they are accepted; `editLast` starts to edit the person's
   * newest message here. `outbox` shows waiting messages. */
  constructor(root, model, outbox, { send, editLast }) {
    Object.assign(this, { send, editLast, outbox, drafts: outbox.drafts });
    this.files = new Map();
    this.place = "";
    this.busy = false;
    this.editing = null;
    this.form = document.createElement("form");
    this.form.className = "composer";
    this.box = Object.assign(document.createElement("textarea"), { rows: 1, dir: "auto" });
    this.hint = Object.assign(document.createElement("span"), { className: "hint" });
    this.button = Object.assign(document.createElement("button"), { type: "submit", textContent: "Send", disabled: true });
    this.cancel = Object.assign(document.createElement("button"), { type: "button", className: "tool", textContent: "Cancel", hidden: true });
    this.attachments = new Attachments(() => this.#grow());
    this.recorder = new Recorder((clip) => this.#sendClip(clip), (problem) => this.#say(problem, true));
    const row = document.createElement("div");
    row.append(this.attachments.button, this.recorder.button, this.hint, this.cancel, this.button);
    this.completion = new Completion(this.box, model);
    this.form.append(this.completion.list, this.box, this.attachments.list, row);
    this.unsent = Object.assign(document.createElement("ul"), { className: "unsent", hidden: true });
    this.unsent.setAttribute("aria-label", "Not sent yet");
    root.append(this.unsent, this.form);
    outbox.addEventListener("changed", () => this.#showUnsent());
    outbox.addEventListener("back", ({ detail }) => { if (detail === this.place) this.#showDraft(); });
    addEventListener("storage", ({ key, oldValue }) => { if (this.drafts.isAt(key, this.place) && this.box.value === (oldValue || "")) this.#showDraft(); });
    addEventListener("beforeunload", (event) => { if (this.attachments.files.length || this.busy || this.recorder.isOn) event.preventDefault(); });
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.cancel.addEventListener("click", () => { this.#forgetEdit(); this.focus(); });
    this.box.addEventListener("input", () => this.#written());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.attachments.takeFrom(this.form);
    new ResizeObserver(() => this.#grow()).observe(this.form);
    this.#say(HINT);
  }

  /** Switch to another channel or thread, keeping the draft of the previous one. */
  moveTo(place, placeholder) {
    this.#endEdit();
    if (place !== this.place) {
      this.files.set(this.place, this.attachments.files);
      this.place = place;
      this.box.value = this.drafts.get(place);
      this.attachments.files = this.files.get(place) || [];
      this.#showUnsent();
    }
    this.box.placeholder = placeholder;
    this.box.setAttribute("aria-label", placeholder);
    this.#grow();
  }

  /** Edit a sent message: `save` takes the new text; Escape restores the draft. An unsaved edit is kept under `key`. */
  edit(text, save, key) {
    this.#endEdit();
    this.editing = { save, key };
    this.box.value = this.drafts.get(key) || text;
    this.button.textContent = "Save";
    this.cancel.hidden = false;
    this.#say(EDIT_HINT);
    this.#grow();
    this.focus();
  }

  /** Set whether anybody may write here; an archived channel shows a note instead. */
  allow(isOpen, why = "") {
    this.form.inert = !isOpen;
    this.form.classList.toggle("shut", !isOpen);
    this.#say(isOpen ? HINT : why);
  }

  /** Show an error next to the composer. */
  complain(problem) {
    this.#say(problem, true);
  }

  /** Whether it is empty: no text and no files. */
  get isEmpty() {
    return !this.box.value && !this.attachments.files.length;
  }

  /** Whether nobody is writing here. A message that is being sent does not count: its answer may arrive first. */
  get isIdle() {
    return this.busy || this.isEmpty;
  }

  /** Whether a person is writing here at this moment. */
  get isInUse() {
    return !this.isEmpty && document.activeElement === this.box;
  }

  focus() {
    this.box.focus({ preventScroll: true });
  }

  #key(event) {
    if (event.isComposing || this.completion.takes(event)) return;
    if (event.key === "ArrowUp" && this.isEmpty && !this.editing && this.editLast()) event.preventDefault();
    else if (event.key === "Enter" && !event.shiftKey && !isTouch()) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape" && this.editing) {
      event.stopPropagation();
      this.#forgetEdit();
    }
  }

  #written() {
    this.drafts.set(this.editing ? this.editing.key : this.place, this.box.value);
    this.#grow();
  }

  #showDraft() {
    if (!this.editing) this.box.value = this.drafts.get(this.place);
    this.#grow();
  }

  #showUnsent() {
    this.unsent.replaceChildren(...this.outbox.list(this.place));
    this.unsent.hidden = !this.unsent.children.length;
  }

  #forgetEdit() {
    if (this.editing) this.drafts.set(this.editing.key, "");
    this.#endEdit();
  }

  #endEdit() {
    if (!this.editing) return;
    this.editing = null;
    this.box.value = this.drafts.get(this.place);
    this.button.textContent = "Send";
    this.cancel.hidden = true;
    this.#say(HINT);
    this.#grow();
  }

  async #submit() {
    const text = this.box.value;
    const files = this.attachments.files;
    if (this.busy || (!text.trim() && !files.length)) return;
    const place = this.place;
    if (this.editing) return void (await this.#saved(text));
    if (!(await this.#sent(() => this.send(text, files), files))) return;
    this.drafts.set(place, "");
    this.files.delete(place);
    if (this.place === place) {
      this.box.value = "";
      this.attachments.files = [];
    }
    this.#grow();
  }

  async #saved(text) {
    const editing = this.editing;
    if (!(await this.#sent(() => editing.save(text), []))) return;
    this.drafts.set(editing.key, "");
    if (this.editing === editing) this.#endEdit();
  }

  #sendClip(clip) {
    return this.#sent(() => this.send("", [clip]), [clip]);
  }

  async #sent(send, files) {
    this.busy = this.box.readOnly = true;
    if (files.length) this.#say(`Uploading ${files.length === 1 ? files[0].name : `${files.length} files`}…`);
    this.#grow();
    try {
      await send();
      this.#say(HINT);
      return true;
    } catch (error) {
      this.#say(`Not sent (${error.message}). It is still here. ${words(error, false)}`, true);
      return false;
    } finally {
      this.busy = this.box.readOnly = false;
      this.#grow();
    }
  }

  #say(text, isError = false) {
    this.hint.textContent = text;
    this.hint.classList.toggle("error", isError);
    this.hint.classList.toggle("usual", text === HINT);
  }

  #grow() {
    this.button.disabled = this.busy || (!this.box.value.trim() && !this.attachments.files.length);
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
  }
}
