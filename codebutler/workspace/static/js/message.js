// One message as a list item: author, body (blocks or text), files, reactions, the way into its thread.

import { emoji } from "./emoji.js";
import { mrkdwn } from "./mrkdwn.js";

function tag(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

const time = (ts) => new Date(Number(ts) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

// Drawn as pixels only; SVG could carry scripts and links.
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export class MessageView {
  /** `actions.edit(message, inThread)` and `actions.remove(message)` are what a person may do with their own. */
  constructor(api, model, actions) {
    this.api = api;
    this.model = model;
    this.actions = actions;
    this.rendered = new Map();
    this.pictures = new Map();
  }

  /** A fresh list item for the message; `inThread` hides the way into the thread. */
  item(message, inThread) {
    const item = tag("li", "message");
    item.dataset.ts = message.ts;
    item.append(this.#avatar(message), this.#byline(message), this.#body(message));
    if (message.reactions?.length) item.append(this.#reactions(message));
    if (!inThread) item.append(...this.#threadLink(message));
    item.append(this.#tools(message, inThread));
    return item;
  }

  #isBot(message) {
    return Boolean(message.bot_id) || this.model.users.get(message.user)?.is_bot;
  }

  #author(message) {
    return message.username || message.bot_profile?.name || this.model.userName(message.user);
  }

  #avatar(message) {
    const bot = this.#isBot(message);
    const avatar = tag("span", bot ? "avatar bot" : "avatar", bot ? "" : this.#author(message).slice(0, 1).toUpperCase());
    avatar.setAttribute("aria-hidden", "true");
    return avatar;
  }

  #byline(message) {
    const line = tag("div", "byline", tag("strong", "", this.#author(message)));
    if (this.#isBot(message)) line.append(tag("span", "tag", "APP"));
    const stamp = tag("time", "", time(message.ts));
    stamp.dateTime = new Date(Number(message.ts) * 1000).toISOString();
    line.append(stamp);
    if (message.edited && !message.blocks?.length) line.append(tag("span", "edited", " (edited)"));
    return line;
  }

  #body(message) {
    const body = tag("div", "body");
    if (message.blocks?.length && message.blocks.some((block) => block.type !== "rich_text")) {
      for (const block of message.blocks) body.append(...this.#block(block, message));
    } else body.append(...this.#mrkdwn(message.text || ""));
    for (const file of message.files || []) body.append(this.#file(file));
    return body;
  }

  #mrkdwn(text) {
    return mrkdwn(text, (id) => this.model.userName(id));
  }

  #textObject(object) {
    if (!object) return [];
    return object.type === "mrkdwn" ? this.#mrkdwn(object.text) : [document.createTextNode(object.text)];
  }

  #block(block, message) {
    switch (block.type) {
      case "markdown": return [this.#markdown(block.text)];
      case "header": return [tag("h3", "", ...this.#textObject(block.text))];
      case "divider": return [document.createElement("hr")];
      case "section": return [tag("div", "", ...this.#textObject(block.text), ...(block.fields || []).flatMap((f) => this.#textObject(f)))];
      case "context": return [tag("div", "context", ...block.elements.flatMap((e) => this.#textObject(e)))];
      case "actions": return [this.#actions(block, message)];
      default: return [];
    }
  }

  #markdown(text) {
    const box = tag("div", "markdown");
    const known = this.rendered.get(text);
    if (known !== undefined) box.innerHTML = known;
    else {
      box.append(tag("div", "text", text));
      this.api.render(text).then((html) => {
        this.rendered.set(text, html);
        box.innerHTML = html;
        box.dispatchEvent(new Event("grown", { bubbles: true }));
      }, () => undefined);
    }
    return box;
  }

  #actions(block, message) {
    const row = tag("div", "actions");
    for (const element of block.elements.filter((e) => e.type === "button")) {
      const button = tag("button", element.style || "", element.text.text);
      button.type = "button";
      button.dataset.action = element.action_id;
      button.addEventListener("click", async () => {
        button.disabled = true;
        await this.api.click(message, { ...element, block_id: block.block_id }).catch(() => undefined);
        setTimeout(() => { button.disabled = false; }, 3000);
      });
      row.append(button);
    }
    return row;
  }

  #file(file) {
    const link = tag("a", "file", "📄", tag("span", "", file.title || file.name));
    link.href = "#";
    link.addEventListener("click", async (event) => {
      event.preventDefault();
      const save = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await this.api.download(file)), download: file.name });
      save.click();
      URL.revokeObjectURL(save.href);
    });
    if (PICTURES.has(file.mimetype)) this.#preview(file, link);
    return link;
  }

  /** A picture is shown in place of its name; what the browser cannot show keeps the name. */
  #preview(file, link) {
    const show = (url) => {
      const picture = Object.assign(document.createElement("img"), { src: url, alt: file.title || file.name });
      picture.addEventListener("load", () => {
        link.classList.add("picture");
        link.replaceChildren(picture);
        link.dispatchEvent(new Event("grown", { bubbles: true }));
      });
    };
    const known = this.pictures.get(file.id);
    if (known) show(known);
    else this.api.download(file).then((blob) => {
      this.pictures.set(file.id, URL.createObjectURL(blob));
      show(this.pictures.get(file.id));
    }, () => undefined);
  }

  #reactions(message) {
    const row = tag("div", "reactions");
    for (const { name, count, users } of message.reactions) {
      const chip = tag("span", "", `${emoji(name)} ${count || users.length}`);
      chip.title = `${(users || []).map((id) => this.model.userName(id)).join(", ")} reacted with ${name}`;
      chip.dataset.reaction = name;
      row.append(chip);
    }
    return row;
  }

  #threadLink(message) {
    const count = this.model.replyCount(message.channel, message.ts);
    if (!count) return [];
    const link = tag("button", "replies", count === 1 ? "1 reply" : `${count} replies`);
    link.type = "button";
    link.addEventListener("click", () => this.model.openThread(message.thread_ts || message.ts));
    return [link];
  }

  #tools(message, inThread) {
    const tools = tag("div", "tools");
    const add = (text, label, act) => {
      const button = Object.assign(tag("button", "", text), { type: "button" });
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      tools.append(button);
    };
    if (!inThread) add("Reply", "Reply in thread", () => this.model.openThread(message.thread_ts || message.ts));
    if (message.user === this.model.me.id && !message.bot_id && message.subtype !== "tombstone") {
      add("Edit", "Edit message", () => this.actions.edit(message, inThread));
      add("Delete", "Delete message", () => this.actions.remove(message, inThread));
    }
    return tools;
  }
}
