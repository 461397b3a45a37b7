// Block Kit to DOM nodes: the same in messages, modals and the home.

import { tag, uniqueId } from "./dom.js";
import { Elements, plain } from "./elements.js";
import { beside, linkBare } from "./links.js";
import { mrkdwn } from "./mrkdwn.js";
import { richText } from "./richtext.js";

export class Blocks {
  constructor(api, model) {
    this.api = api;
    this.model = model;
    this.elements = new Elements(api, model);
    this.rendered = new Map();
  }

  /** The nodes of some blocks; people's choices in them go into the form. */
  nodes(blocks, form) {
    return blocks.flatMap((block) => this.#block(block, form));
  }

  /** The nodes of a mrkdwn text. */
  mrkdwn(text) {
    return mrkdwn(text, (id) => this.model.userName(id), (id) => this.model.channels.get(id)?.name);
  }

  #text(object) {
    if (!object) return [];
    return object.type === "mrkdwn" ? this.mrkdwn(object.text) : [document.createTextNode(object.text)];
  }

  #block(block, form) {
    switch (block.type) {
      case "markdown": return [this.#markdown(block.text)];
      case "header": return [level(tag("h3", "", ...this.#text(block.text)))];
      case "divider": return [document.createElement("hr")];
      case "section": return [this.#section(block, form)];
      case "context": return [tag("div", "context", ...block.elements.map((e) => this.#context(e)))];
      case "actions": return [tag("div", "actions", ...block.elements.map((e) => this.elements.control(e, block, form)))];
      case "input": return [this.#input(block, form)];
      case "image": return [this.#image(block)];
      case "rich_text": return richText(block, this.model);
      case "table": return [this.#table(block)];
      default: return [tag("p", "note", `A part of this message cannot be shown here (${block.type}).`)];
    }
  }

  #section(block, form) {
    const main = tag("div", "section-text", ...this.#text(block.text));
    if (block.fields) main.append(tag("div", "fields", ...block.fields.map((f) => tag("div", "", ...this.#text(f)))));
    const section = tag("div", "section", main);
    if (block.accessory?.type === "image") section.append(this.#image(block.accessory));
    else if (block.accessory) section.append(tag("div", "accessory", this.elements.control(block.accessory, block, form)));
    return section;
  }

  #context(element) {
    return element.type === "image" ? this.#image(element) : tag("span", "", ...this.#text(element));
  }

  /** Pictures from elsewhere are not fetched: their server would learn who looks at them. */
  #image(image) {
    const link = tag("a", "", `🖼 ${image.alt_text || plain(image.title) || "picture"}`);
    if (!/^https?:/.test(image.image_url || "")) return tag("span", "note", link.textContent);
    return Object.assign(link, { href: image.image_url, target: "_blank", rel: "noopener noreferrer" });
  }

  #input(block, form) {
    const control = this.elements.control(block.element, block, form);
    const target = control.matches(".options, .external") ? control.querySelector("input") || control : control;
    const group = control.matches(".options");
    target.id ||= uniqueId("input");
    const label = tag(group ? "span" : "label", "label", plain(block.label), ...(block.optional ? [tag("small", "", " (optional)")] : []));
    label.id = uniqueId("label");
    if (group) control.setAttribute("aria-labelledby", label.id);
    else label.htmlFor = target.id;
    const box = tag("div", "field", label, control);
    box.dataset.block = block.block_id;
    if (block.hint) box.append(tag("p", "note", plain(block.hint)));
    return box;
  }

  #table(block) {
    const rows = (block.rows || []).map((row, at) => tag("tr", "", ...row.map((cell) => tag(at ? "td" : "th", "", ...this.#cell(cell)))));
    return tag("table", "", tag("thead", "", ...rows.slice(0, 1)), tag("tbody", "", ...rows.slice(1)));
  }

  #cell(cell) {
    return cell.type === "rich_text" ? richText(cell, this.model) : [cell.text ?? ""];
  }

  #markdown(text) {
    const box = tag("div", "markdown");
    const known = this.rendered.get(text);
    if (known !== undefined) fill(box, known);
    else {
      box.append(tag("div", "text", text));
      this.api.render(text).then((html) => {
        this.rendered.set(text, html);
        fill(box, html);
        box.dispatchEvent(new Event("grown", { bubbles: true }));
      }, () => undefined);
    }
    return box;
  }
}

/** The server made this HTML from Markdown, and escaped any markup in it. */
function fill(box, html) {
  box.innerHTML = html;
  box.querySelectorAll("a").forEach(beside);
  box.querySelectorAll("h1, h2, h3, h4, h5, h6").forEach(level);
  box.querySelectorAll("li").forEach(task);
  linkBare(box);
}

/** A list item that begins with [ ] or [x] has a checkbox instead of a bullet. */
function task(item) {
  const [, mark] = item.textContent.match(/^\[([ xX])\] /) || [];
  if (!mark) return;
  const text = document.createTreeWalker(item, NodeFilter.SHOW_TEXT).nextNode();
  text.data = text.data.slice(4);
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: mark !== " ", disabled: true });
  box.setAttribute("aria-label", mark === " " ? "open" : "done");
  item.classList.add("task");
  text.before(box, " ");
}

/** In the page's outline, an author's headings of any level are below the channel or thread. */
function level(heading) {
  heading.setAttribute("aria-level", "2");
  return heading;
}
