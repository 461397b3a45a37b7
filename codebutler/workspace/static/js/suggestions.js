// Suggested first messages above the composer: each until it is sent, all until somebody hides them.

import { button, icon, tag } from "./dom.js";

const HIDDEN = "suggestions hidden";

export class Suggestions {
  /** `say` sends a text in the channel that is shown. */
  constructor(root, model, say) {
    this.root = root;
    this.model = model;
    this.say = say;
  }

  /** Show the remaining ones for the open channel. */
  draw() {
    const left = this.#left();
    this.root.hidden = !left.length;
    if (!left.length) return this.root.replaceChildren();
    const hide = button(icon("close"), "icon", () => this.#hide(), "Hide the suggestions");
    const list = tag("ul", "", ...left.map((one) => tag("li", "", this.#offer(one))));
    return this.root.replaceChildren(tag("div", "head", tag("h2", "", "Try it"), hide), list);
  }

  #left() {
    const { model } = this;
    // They are about the first channel's repository.
    const { id, is_archived: isArchived } = [...model.channels.values()].find((channel) => !channel.is_im) || {};
    if (model.atHome || id !== model.channel || isArchived || sessionStorage.getItem(HIDDEN)) return [];
    const said = new Set(model.roots(model.channel).filter(({ user }) => user === model.me.id).map(({ text }) => text));
    return model.offers.suggestions.filter(({ text }) => !said.has(text));
  }

  #offer({ text, shows }) {
    return button(tag("span", "", tag("strong", "", shows), tag("span", "", text)), "", () => this.say(text));
  }

  #hide() {
    sessionStorage.setItem(HIDDEN, "yes");
    this.draw();
  }
}
