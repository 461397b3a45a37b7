// The app's modals, stacked: only the top one is shown. Typed text stays until it is accepted.

import { button, icon, reachable, tag, uniqueId } from "./dom.js";
import { plain } from "./elements.js";
import { Form } from "./form.js";
import { words } from "./words.js";

export class Modals {
  constructor(api, model, blocks) {
    Object.assign(this, { api, model, blocks });
    this.box = tag("dialog", "app-modal");
    this.forms = new Map();
    this.shown = "";
    this.problem = Object.assign(tag("p", "problem-line"), { role: "alert" });
    // Escape closes the top view, as its own button does.
    this.box.addEventListener("cancel", (event) => { event.preventDefault(); this.#leave(false); });
    this.box.addEventListener("grown", ({ target }) => reachable(target));
    document.body.append(this.box);
    model.addEventListener("views", () => this.draw());
  }

  /** Show the top view, or nothing. */
  draw() {
    const view = this.model.modals.at(-1);
    if (!view) return this.#hide();
    const key = `${view.id} ${view.hash}`;
    if (key === this.shown) return undefined;
    this.shown = key;
    this.#fill(view);
    if (!this.box.open) this.box.showModal();
    reachable(this.box);
    (this.body.querySelector("input, textarea, select") || this.box.querySelector("footer button"))?.focus();
    return undefined;
  }

  #hide() {
    this.shown = "";
    this.forms.forEach((form) => form.forget());
    this.forms.clear();
    if (this.box.open) this.box.close();
    this.box.replaceChildren();
  }

  #fill(view) {
    const title = Object.assign(tag("h2", "", plain(view.title)), { id: uniqueId("title") });
    this.box.setAttribute("aria-labelledby", title.id);
    const header = tag("header", "", title, button(icon("close"), "icon", () => this.#leave(true), "Close"));
    this.body = tag("div", "modal-body", ...this.blocks.nodes(view.blocks, this.#form(view)));
    const footer = tag("footer", "", button(plain(view.close) || (view.previous_view_id ? "Back" : "Cancel"), "", () => this.#leave(false)));
    if (view.submit) footer.append(Object.assign(button(plain(view.submit), "primary"), { type: "submit" }));
    const form = tag("form", "", header, this.body, this.problem, footer);
    form.noValidate = true;
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(view); });
    this.problem.textContent = "";
    this.box.replaceChildren(form);
  }

  #form(view) {
    if (!this.forms.has(view.id)) this.forms.set(view.id, new Form({ view_id: view.id }, `form ${this.api.token} ${view.id}`));
    return this.forms.get(view.id);
  }

  async #submit(view) {
    const send = this.box.querySelector("[type=submit]");
    if (!send || send.disabled) return;
    send.disabled = true;
    this.problem.textContent = "";
    try {
      const { errors } = await this.api.page("submit", { view_id: view.id, values: this.#form(view).values });
      this.#mark(errors || {});
    } catch (error) {
      this.problem.textContent = `${words(error)} Your entries are still here.`;
    } finally {
      send.disabled = false;
    }
  }

  /** Show the errors at their fields. */
  #mark(errors) {
    this.body.querySelectorAll(".field-error").forEach((old) => old.remove());
    this.body.querySelectorAll("[aria-invalid]").forEach((control) => control.removeAttribute("aria-invalid"));
    for (const [block, text] of Object.entries(errors)) {
      const field = this.body.querySelector(`[data-block="${CSS.escape(block)}"]`);
      const note = Object.assign(tag("p", "field-error", text), { id: uniqueId("error") });
      if (!field) this.problem.textContent = text;
      else {
        field.append(note);
        field.querySelectorAll("input, textarea, select").forEach((control) => {
          control.setAttribute("aria-invalid", "true");
          control.setAttribute("aria-describedby", note.id);
        });
      }
    }
    this.body.querySelector("[aria-invalid]")?.focus();
  }

  async #leave(everything) {
    const view = this.model.modals.at(-1);
    if (!view) return;
    try {
      await this.api.page("close", { view_id: view.id, clear: everything });
    } catch (error) {
      this.problem.textContent = words(error);
    }
  }
}
