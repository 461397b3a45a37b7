// The sidebar: channels, people, the app's home; and the current user.

import { button, icon, tag } from "./dom.js";
import { avatar } from "./message.js";

const FRAME_MS = 16;

const $ = (id) => document.getElementById(id);

export class Sidebar {
  /** `create` asks for a new channel's name. */
  constructor(model, create) {
    this.model = model;
    $("add-channel").addEventListener("click", create);
    // Several changes at once are drawn once.
    model.addEventListener("channels", () => { this.waiting ||= setTimeout(() => this.draw(), FRAME_MS); });
    model.addEventListener("navigation", () => this.show(false));
    $("menu").addEventListener("click", () => this.show(!this.isOpen));
    document.addEventListener("pointerdown", ({ target }) => { if (!target.closest("#sidebar, #menu")) this.show(false); });
  }

  get isOpen() {
    return $("sidebar").classList.contains("open");
  }

  /** On a phone it covers the channel. */
  show(open) {
    $("sidebar").classList.toggle("open", open);
    $("menu").setAttribute("aria-expanded", String(open));
  }

  draw() {
    const { model } = this;
    const focused = document.activeElement.dataset.place;
    this.waiting = 0;
    const known = [...model.channels.values()];
    const open = known.filter((channel) => !channel.is_im && (!channel.is_archived || channel.id === model.channel));
    const people = known.filter((channel) => channel.is_im && channel.user !== model.bot.user_id);
    $("channels").replaceChildren(...open.map((channel) => this.#entry(channel, `${channel.is_private ? "🔒" : "#"} ${channel.name}`)));
    $("people").replaceChildren(...people.map((channel) => this.#entry(channel, model.userName(channel.user))));
    $("people-title").hidden = !people.length;
    $("apps").replaceChildren(this.#app());
    $("me").replaceChildren(avatar(model.me.name, false), tag("span", "", model.me.name));
    if (focused) $("sidebar").querySelector(`[data-place="${CSS.escape(focused)}"]`)?.focus();
    const count = model.unreadCount;
    document.title = `${count ? `(${count}) ` : ""}${this.#place()} · ${model.team.name}`;
  }

  #place() {
    const { model } = this;
    return model.atHome ? model.bot.name : model.channelName(model.channel, "#");
  }

  #app() {
    const { model } = this;
    const entry = this.#row(model.bot.name, model.atHome || model.channel === model.botChannel?.id, () => model.openHome());
    entry.firstChild.prepend(icon("home"));
    this.#count(entry.firstChild, model.botChannel?.id);
    return entry;
  }

  #entry(channel, name) {
    const { model } = this;
    const entry = this.#row(name, channel.id === model.channel && !model.atHome, () => model.openChannel(channel.id));
    if (channel.is_archived) entry.firstChild.append(tag("span", "mark", "archived"));
    this.#count(entry.firstChild, channel.id);
    return entry;
  }

  #row(name, isHere, go) {
    const node = button(tag("span", "name", name), "", () => { this.show(false); go(); });
    node.title = name;
    node.dataset.place = name;
    node.setAttribute("aria-current", String(isHere));
    return tag("li", "", node);
  }

  #count(node, channel) {
    const unread = this.model.unread.get(channel);
    if (!unread) return;
    node.classList.add("has-unread");
    const badge = tag("span", "unread", unread.count > 99 ? "99+" : String(unread.count));
    badge.setAttribute("aria-label", `${unread.count} unread`);
    node.append(badge);
  }
}
