// One message as a list item: author, body (blocks or text), files, reactions, the way into its thread.

import { button, icon, tag } from "./dom.js";
import { emoji } from "./emoji.js";
import { Form } from "./form.js";
import { isPicturesOnly } from "./mrkdwn.js";
import { time } from "./text.js";
import { MessageTools } from "./tools.js";
import { rove } from "./walk.js";
import { notice, words } from "./words.js";

const NOTES = new Set(["channel_join", "channel_leave", "channel_name", "channel_topic", "channel_purpose", "channel_archive", "channel_unarchive"]);

export class MessageView {
  /** `parts` render {blocks, files}. `actions.edit(message, inThread)` and `actions.remove(message, inThread)` are the
   * actions for a person's own messages. */
  constructor(api, model, parts, actions) {
    Object.assign(this, { api, model, parts });
    this.forms = new Map();
    this.tools = new MessageTools(api, model, { ...actions, react: (message, name) => this.#react(message, name, false) });
  }

  /** A new list item for the message; `inThread` hides the link to the thread. */
  item(message, inThread) {
    const item = tag("li", "message");
    item.dataset.ts = message.ts;
    item.tabIndex = -1;
    if (NOTES.has(message.subtype)) return this.#note(item, message);
    item.dataset.author = message.user;
    // Edited and ephemeral messages say so in their first line, so it is always shown.
    if (message.edited || message.is_ephemeral) item.dataset.named = "";
    if (message.is_ephemeral) item.classList.add("whisper");
    item.append(this.#avatar(message), this.#byline(message), this.#body(message));
    if (message.reactions?.length) item.append(this.#reactions(message));
    if (!inThread) item.append(...this.#threadLink(message));
    item.append(this.tools.row(message, inThread));
    rove(item);
    return item;
  }

  /** An event of the channel, as one quiet line. */
  #note(item, message) {
    item.classList.add("event");
    item.append(tag("div", "body", ...this.parts.blocks.mrkdwn(message.text || "")), this.#time(message));
    return item;
  }

  #time(message) {
    const sent = tag("time", "", time(message.ts));
    sent.dateTime = new Date(Number(message.ts) * 1000).toISOString();
    sent.title = new Date(Number(message.ts) * 1000).toLocaleString();
    return sent;
  }

  #isBot(message) {
    return Boolean(message.bot_id) || this.model.users.get(message.user)?.is_bot;
  }

  #author(message) {
    return message.username || message.bot_profile?.name || this.model.userName(message.user);
  }

  #avatar(message) {
    return avatar(this.#author(message), message.user === this.model.bot.user_id);
  }

  #byline(message) {
    const line = tag("div", "byline", tag("strong", "", this.#author(message)));
    if (this.#isBot(message)) line.append(tag("span", "tag", "APP"));
    line.append(this.#time(message));
    if (message.edited && !message.blocks?.length) line.append(tag("span", "edited", " (edited)"));
    if (message.is_ephemeral) line.append(tag("span", "edited", " · Only visible to you · "), button("Dismiss", "link", () => this.model.forget(message.channel, message.ts)));
    return line;
  }

  #body(message) {
    const body = tag("div", "body");
    // The text of a message that is only rich_text says the same, and more briefly.
    if (message.blocks?.length && (!message.text || message.blocks.some((block) => block.type !== "rich_text"))) {
      body.append(...this.parts.blocks.nodes(message.blocks, this.#form(message)));
    } else {
      body.classList.toggle("jumbo", isPicturesOnly(message.text || ""));
      body.append(...this.parts.blocks.mrkdwn(message.text || ""));
    }
    for (const attachment of message.attachments || []) body.append(this.#attachment(attachment, message));
    for (const file of message.files || []) body.append(this.parts.files.node(file));
    return body;
  }

  #attachment(attachment, message) {
    const box = tag("div", "attachment");
    if (attachment.title) box.append(tag("strong", "", attachment.title));
    if (attachment.blocks) box.append(...this.parts.blocks.nodes(attachment.blocks, this.#form(message)));
    else box.append(...this.parts.blocks.mrkdwn(attachment.text || attachment.fallback || ""));
    return box;
  }

  /** The choices in a message survive a redraw. */
  #form({ channel, ts }) {
    const key = `${channel}:${ts}`;
    if (!this.forms.has(key)) this.forms.set(key, new Form({ channel, message_ts: ts }));
    return this.forms.get(key);
  }

  #reactions(message) {
    const row = tag("div", "reactions");
    for (const { name, count, users } of message.reactions) {
      const mine = (users || []).includes(this.model.me.id);
      const who = `${(users || []).map((id) => this.model.userName(id)).join(", ")} reacted with ${name}`;
      const chip = button(`${emoji(name)} ${count || users.length}`, "", () => this.#react(message, name, mine), who);
      chip.setAttribute("aria-pressed", String(mine));
      chip.dataset.reaction = name;
      row.append(chip);
    }
    return row;
  }

  async #react({ channel, ts }, name, mine) {
    try {
      await this.api.call(mine ? "reactions.remove" : "reactions.add", { channel, timestamp: ts, name });
    } catch (error) {
      notice(words(error));
    }
  }

  #threadLink(message) {
    const root = message.thread_ts || message.ts;
    const count = this.model.replyCount(message.channel, message.ts);
    const status = this.model.statusOf(message.channel, root);
    if (!count && !status) return [];
    const said = count === 1 ? "1 reply" : count ? `${count} replies` : "";
    const link = button(said, "replies", () => this.model.openThread(root));
    if (status) link.append(tag("span", "doing", `${said && " "}${this.model.bot.name} ${status}…`));
    return [link];
  }
}

/** The first letter of a name on its own colour; the app has a picture. */
export function avatar(name, isApp) {
  const picture = tag("span", isApp ? "avatar bot" : "avatar", isApp ? "" : name.slice(0, 1).toUpperCase());
  const hue = [...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 6;
  if (!isApp) picture.classList.add(`hue-${hue}`);
  picture.setAttribute("aria-hidden", "true");
  return picture;
}
