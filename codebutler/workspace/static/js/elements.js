// Block Kit's interactive elements as the browser's own controls. Each stores its answer in its form.

import { ask, button, icon, tag, uniqueId } from "./dom.js";
import { mrkdwn } from "./mrkdwn.js";
import { notice, words } from "./words.js";

const BUSY_MS = 600;
const SUGGEST_MS = 250;

/** The text of a text object. */
export const plain = (object) => object?.text || "";

const optionsOf = (element) => [...(element.options || []), ...(element.option_groups || []).flatMap((group) => group.options || [])];

export class Elements {
  constructor(api, model) {
    this.api = api;
    this.model = model;
  }

  /** The control of one element. In an input block the app learns nothing before the form is submitted. */
  control(element, block, form) {
    const make = {
      button: () => this.#button(element, block, form),
      overflow: () => this.#overflow(element, block, form),
      static_select: () => this.#select(element, block, form, optionsOf(element).map((o) => [o.value, plain(o.text)])),
      external_select: () => this.#external(element, block, form),
      users_select: () => this.#select(element, block, form, this.#people()),
      channels_select: () => this.#select(element, block, form, this.#channels()),
      conversations_select: () => this.#select(element, block, form, this.#channels()),
      multi_static_select: () => this.#boxes(element, block, form, optionsOf(element).map((o) => [o.value, plain(o.text)])),
      multi_users_select: () => this.#boxes(element, block, form, this.#people()),
      multi_channels_select: () => this.#boxes(element, block, form, this.#channels()),
      multi_conversations_select: () => this.#boxes(element, block, form, this.#channels()),
      checkboxes: () => this.#boxes(element, block, form, optionsOf(element).map((o) => [o.value, plain(o.text), plain(o.description)])),
      radio_buttons: () => this.#radios(element, block, form),
      datepicker: () => this.#input(element, block, form, "date", element.initial_date),
      datetimepicker: () => this.#moment(element, block, form),
      multi_external_select: () => this.#external(element, block, form, true),
      timepicker: () => this.#input(element, block, form, "time", element.initial_time),
      plain_text_input: () => this.#text(element, block, form),
      email_text_input: () => this.#input(element, block, form, "email", element.initial_value),
      url_text_input: () => this.#input(element, block, form, "url", element.initial_value),
      number_input: () => this.#input(element, block, form, "text", element.initial_value, "decimal"),
    }[element.type];
    return make ? make() : tag("span", "note", `“${element.type}” cannot be shown here.`);
  }

  #button(element, block, form) {
    if (element.url && /^https?:/.test(element.url)) {
      const link = Object.assign(tag("a", "button", plain(element.text)), { href: element.url, target: "_blank", rel: "noopener noreferrer" });
      link.addEventListener("click", () => this.#tell(element, block, form, element.value));
      return link;
    }
    const node = button(plain(element.text), element.style || "", async () => {
      node.disabled = true;
      await this.#tell(element, block, form, element.value);
      setTimeout(() => { node.disabled = false; }, BUSY_MS);
    });
    node.dataset.action = element.action_id;
    return node;
  }

  #overflow(element, block, form) {
    const menu = tag("div", "menu");
    menu.popover = "auto";
    menu.id = uniqueId("menu");
    const opener = button(icon("more"), "overflow", () => this.#place(menu, opener), "More actions");
    opener.setAttribute("popovertarget", menu.id);
    menu.append(...(element.options || []).map((option) => button(plain(option.text), "", () => {
      menu.hidePopover();
      this.#tell(element, block, form, option.value);
    })));
    return tag("span", "overflow-box", opener, menu);
  }

  #place(menu, opener) {
    const { right, bottom } = opener.getBoundingClientRect();
    Object.assign(menu.style, { top: `${bottom + 4}px`, right: `${Math.max(8, innerWidth - right)}px` });
  }

  #select(element, block, form, choices) {
    const node = tag("select", "");
    node.append(new Option(plain(element.placeholder) || "Choose…", ""));
    if (element.option_groups) node.append(...element.option_groups.map((group) => this.#group(group)));
    else node.append(...choices.map(([value, text]) => new Option(text, value)));
    const begun = element.initial_option?.value || element.initial_user || element.initial_channel || element.initial_conversation;
    node.value = form.get(block, element) ?? begun ?? "";
    return this.#told(node, element, block, form, () => node.value);
  }

  #group(group) {
    const node = Object.assign(document.createElement("optgroup"), { label: plain(group.label) });
    node.append(...group.options.map((option) => new Option(plain(option.text), option.value)));
    return node;
  }

  /** The app provides the options, and is asked again after each letter. With `isMany` several can be chosen. */
  #external(element, block, form, isMany = false) {
    const list = Object.assign(tag("datalist", ""), { id: uniqueId("list") });
    const node = Object.assign(tag("input", ""), { type: "text", placeholder: plain(element.placeholder) });
    node.setAttribute("list", list.id);
    if (!isMany) node.value = plain((form.get(block, element) || element.initial_option)?.text);
    const known = new Map();
    let waiting = 0;
    const ask = async () => {
      const answer = await this.api.page("suggest", { ...form.context, action_id: element.action_id, block_id: block.block_id, value: node.value }).catch(() => ({ options: [] }));
      answer.options.forEach((option) => known.set(plain(option.text), option));
      list.replaceChildren(...answer.options.map((option) => new Option("", plain(option.text))));
    };
    node.addEventListener("focus", ask);
    node.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, SUGGEST_MS); });
    if (isMany) return tag("span", "external", node, list, this.#taken(node, known, element, block, form));
    this.#told(node, element, block, form, () => known.get(node.value) || null);
    return tag("span", "external", node, list);
  }

  /** The chosen options, each with a button that removes it. */
  #taken(node, known, element, block, form) {
    const chips = tag("span", "taken");
    const chosen = () => form.get(block, element) ?? element.initial_options ?? [];
    const change = (options) => { this.#changed(element, block, form, options); draw(); };
    const draw = () => chips.replaceChildren(...chosen().map((option) => {
      const text = plain(option.text);
      return button(`${text} ×`, "chip", () => change(chosen().filter((other) => other.value !== option.value)), `Remove ${text}`);
    }));
    node.dataset.action = element.action_id;
    node.addEventListener("input", () => {
      const option = known.get(node.value);
      if (!option || chosen().some((other) => other.value === option.value)) return;
      node.value = "";
      change([...chosen(), option]);
    });
    draw();
    return chips;
  }

  #boxes(element, block, form, choices) {
    const begun = (element.initial_options || []).map((option) => option.value);
    const chosen = new Set(form.get(block, element) ?? element.initial_users ?? element.initial_channels ?? element.initial_conversations ?? begun);
    return this.#options(element, "checkbox", choices, (value) => chosen.has(value), (value, on) => {
      if (on) chosen.add(value);
      else chosen.delete(value);
      this.#changed(element, block, form, [...chosen]);
    });
  }

  #radios(element, block, form) {
    const begun = form.get(block, element) ?? element.initial_option?.value;
    const choices = element.options.map((option) => [option.value, plain(option.text), plain(option.description)]);
    return this.#options(element, "radio", choices, (value) => value === begun, (value) => this.#changed(element, block, form, value));
  }

  #options(element, type, choices, isChosen, changed) {
    const box = tag("div", "options");
    box.setAttribute("role", type === "radio" ? "radiogroup" : "group");
    const name = uniqueId("options");
    for (const [value, text, description] of choices) {
      const input = Object.assign(tag("input", ""), { type, name, value, checked: isChosen(value) });
      input.addEventListener("change", () => changed(value, input.checked));
      box.append(tag("label", "", input, tag("span", "", text, ...(description ? [tag("small", "", description)] : []))));
    }
    box.setAttribute("aria-label", plain(element.placeholder) || "Options");
    return box;
  }

  #text(element, block, form) {
    const node = tag(element.multiline ? "textarea" : "input", "");
    if (element.multiline) node.rows = 4;
    if (element.max_length) node.maxLength = element.max_length;
    node.placeholder = plain(element.placeholder);
    node.value = form.get(block, element) ?? element.initial_value ?? "";
    return this.#typed(node, element, block, form);
  }

  #input(element, block, form, type, begun, mode = "") {
    const node = Object.assign(tag("input", ""), { type, placeholder: plain(element.placeholder), value: form.get(block, element) ?? begun ?? "" });
    if (mode) node.inputMode = mode;
    if (type === "date" || type === "time") return this.#told(node, element, block, form, () => node.value);
    return this.#typed(node, element, block, form);
  }

  /** A moment is a number of seconds for the app, and the browser's own date and time for the person. */
  #moment(element, block, form) {
    const begun = form.get(block, element) ?? element.initial_date_time;
    const local = begun ? new Date((begun - new Date(begun * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, 16) : "";
    const node = Object.assign(tag("input", ""), { type: "datetime-local", value: local });
    return this.#told(node, element, block, form, () => (node.value ? Math.round(new Date(node.value).getTime() / 1000) : ""));
  }

  /** Every change is stored; with `dispatch_action`, Enter notifies the app. */
  #typed(node, element, block, form) {
    node.dataset.action = element.action_id;
    node.addEventListener("input", () => form.set(block, element, node.value));
    if (block.dispatch_action) node.addEventListener("keydown", (event) => { if (event.key === "Enter" && !element.multiline) { event.preventDefault(); this.#tell(element, block, form, node.value); } });
    return node;
  }

  #told(node, element, block, form, value) {
    node.dataset.action = element.action_id;
    if (block.type !== "input") node.setAttribute("aria-label", plain(element.placeholder) || "Choose");
    node.addEventListener("change", () => this.#changed(element, block, form, value()));
    return node;
  }

  #changed(element, block, form, value) {
    form.set(block, element, value);
    if (block.type !== "input" || block.dispatch_action) this.#tell(element, block, form, value);
  }

  async #tell(element, block, form, value) {
    if (element.confirm && !(await ask(this.#question(element.confirm)))) return;
    try {
      await this.api.page("click", { ...form.context, action_id: element.action_id, block_id: block.block_id, value: value ?? "", values: form.values });
    } catch (error) {
      notice(words(error));
    }
  }

  #question({ title, text, confirm, deny, style }) {
    const said = text?.type === "mrkdwn" ? mrkdwn(text.text, (id) => this.model.userName(id)) : plain(text);
    return { title: plain(title) || "Are you sure?", text: said, yes: plain(confirm) || "Yes", no: plain(deny) || "Cancel", isDangerous: style === "danger" };
  }

  #people() {
    return [...this.model.users.values()].map((user) => [user.id, user.name]);
  }

  #channels() {
    return [...this.model.channels.values()].filter((channel) => !channel.is_im).map((channel) => [channel.id, `#${channel.name}`]);
  }
}
