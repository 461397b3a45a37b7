// The app's home tab, as published for this person.

import { reachable, tag } from "./dom.js";
import { Form } from "./form.js";
import { notice, words } from "./words.js";

export class Home {
  constructor(root, api, model, blocks) {
    Object.assign(this, { root, api, model, blocks });
    this.shown = "";
    this.form = null;
    root.addEventListener("grown", ({ target }) => reachable(target));
    model.addEventListener("views", () => { if (model.atHome) this.#draw(); });
  }

  /** The person opens it: the app is notified, and may publish a newer one. */
  async open() {
    this.shown = "";
    this.#draw();
    const since = this.model.viewChanges;
    try {
      const { home, channel } = await this.api.page("home", { tab: "home" });
      // A home that the app published meanwhile came over the stream, and is newer than this answer.
      if (this.model.viewChanges === since) this.model.home = home;
      this.#draw();
      return channel;
    } catch (error) {
      notice(words(error));
      return null;
    }
  }

  #draw() {
    const { home } = this.model;
    const key = home ? `${home.id} ${home.hash}` : "none";
    if (key === this.shown) return;
    this.shown = key;
    if (this.form?.context.view_id !== home?.id) this.form = new Form({ view_id: home?.id });
    const nothing = tag("p", "empty", `${this.model.bot.name} has nothing to show here yet.`);
    this.root.replaceChildren(...(home ? this.blocks.nodes(home.blocks, this.form) : [nothing]));
    reachable(this.root);
  }
}
