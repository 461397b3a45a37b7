// The actions for a message: a row of buttons beside it or, on a touch screen, a sheet at the bottom.

import { button, icon, tag } from "./dom.js";
import { REACTIONS, emoji } from "./emoji.js";
import { notice, words } from "./words.js";

const QUICK = REACTIONS.slice(0, 6);

export class MessageTools {
  /** `actions` {react, edit, remove} take the message first. */
  constructor(api, model, actions) {
    Object.assign(this, { api, model, actions });
  }

  /** The buttons of one message. */
  row(message, inThread) {
    const row = tag("div", "tools");
    if (message.is_ephemeral || message.subtype === "tombstone") return row;
    const offered = this.#offered(message, inThread);
    for (const { name, drawing, label, act } of offered) {
      const node = button(icon(drawing), "", () => act(node), label);
      node.dataset.tool = name;
      row.append(node);
    }
    const all = button(icon("more"), "all", () => this.#sheet(message, all, offered), "Message actions");
    all.dataset.tool = "all";
    row.append(all);
    return row;
  }

  #offered(message, inThread) {
    const { model, actions } = this;
    const offered = [{ name: "react", drawing: "smile", label: "Add a reaction", act: (opener) => this.#pick(message, opener) }];
    if (!inThread) offered.push({ name: "reply", drawing: "reply", label: "Reply in thread", act: () => model.openThread(message.thread_ts || message.ts) });
    const shortcuts = model.offers.shortcuts.filter((one) => one.on_message);
    if (shortcuts.length) offered.push({ name: "more", drawing: "more", label: "Shortcuts", act: (opener) => this.#shortcuts(message, opener, shortcuts) });
    if (message.user !== model.me.id) return offered;
    offered.push({ name: "edit", drawing: "edit", label: "Edit message", act: () => actions.edit(message, inThread) });
    return [...offered, { name: "remove", drawing: "remove", label: "Delete message", act: () => actions.remove(message, inThread) }];
  }

  #reactions(message, names) {
    return names.map((name) => button(emoji(name), "", () => this.actions.react(message, name), name));
  }

  #pick(message, opener) {
    this.#menu(opener, "menu picker", "Reactions", this.#reactions(message, REACTIONS));
  }

  #sheet(message, opener, offered) {
    const rows = offered.map(({ name, drawing, label, act }) => {
      const row = button(icon(drawing), name === "remove" ? "danger" : "", () => act(opener));
      row.append(tag("span", "", label));
      return row;
    });
    this.#menu(opener, "menu sheet", "Message actions", [tag("div", "quick", ...this.#reactions(message, QUICK)), ...rows]);
  }

  /** The app's shortcuts for messages. */
  #shortcuts(message, opener, shortcuts) {
    this.#menu(opener, "menu", "Shortcuts", shortcuts.map((one) => button(one.name, "", () => this.#use(message, one))));
  }

  async #use({ channel, ts }, shortcut) {
    try {
      await this.api.page("shortcut", { callback_id: shortcut.callback_id, channel, message_ts: ts });
    } catch (error) {
      notice(words(error));
    }
  }

  #menu(opener, className, label, items) {
    const menu = tag("div", className, ...items);
    menu.popover = "auto";
    menu.setAttribute("role", "group");
    menu.setAttribute("aria-label", label);
    // It closes before the chosen action opens something else.
    menu.addEventListener("click", ({ target }) => { if (target.closest("button")) menu.hidePopover(); }, { capture: true });
    menu.addEventListener("toggle", ({ newState }) => { if (newState === "closed") menu.remove(); });
    opener.closest("main, aside").append(menu);
    menu.showPopover();
    if (!menu.classList.contains("sheet")) place(menu, opener);
    menu.querySelector("button").focus();
  }
}

/** Place it below its opener, or above if there is no room. */
function place(menu, opener) {
  const { right, bottom, top } = opener.getBoundingClientRect();
  const above = bottom + menu.offsetHeight + 8 > innerHeight;
  Object.assign(menu.style, { top: `${above ? top - menu.offsetHeight - 4 : bottom + 4}px`, left: `${Math.max(8, Math.min(right, innerWidth - 8) - menu.offsetWidth)}px` });
}
