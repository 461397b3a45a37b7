// The conversation on the page: a channel, a thread beside it, or the app's home; sending, and new messages.

import { Blocks } from "./blocks.js";
import { Composer, isTouch } from "./composer.js";
import { ask, tag } from "./dom.js";
import { Drafts, placeOf } from "./drafts.js";
import { Files } from "./files.js";
import { History } from "./history.js";
import { Home } from "./home.js";
import { MessageList } from "./list.js";
import { MessageView } from "./message.js";
import { Modals } from "./modal.js";
import { Outbox } from "./outbox.js";
import { Reading } from "./reading.js";
import { Suggestions } from "./suggestions.js";
import { escape, typed } from "./text.js";
import { notice, words } from "./words.js";

const $ = (id) => document.getElementById(id);
const PLACE = "place";

export class Page {
  constructor(api, model) {
    this.api = api;
    this.model = model;
    this.drawn = {}; // the channel and thread that are shown
    this.uploads = false; // whether files are being sent to the channel
    this.said = null; // the person's newest message in the channel, while its first answer is awaited
    const blocks = new Blocks(api, model);
    const view = new MessageView(api, model, { blocks, files: new Files(api) }, {
      edit: (message, inThread) => this.#edit(message, inThread),
      remove: (message, inThread) => this.#remove(message, inThread),
    });
    this.history = new History(api, model);
    this.reading = new Reading(api, model);
    this.home = new Home($("home"), api, model, blocks);
    this.suggestions = new Suggestions($("suggestions"), model, (text) => this.#say(text, []).catch((error) => notice(words(error))));
    this.modals = new Modals(api, model, blocks);
    this.channelList = new MessageList($("messages"), view, () => model.roots(model.channel), false, () => this.#older());
    this.threadList = new MessageList($("replies"), view, () => model.replies(model.channel, model.thread), true);
    this.outbox = new Outbox((message) => this.#post(message), new Drafts(model.me.id), api.token);
    this.channelComposer = this.#composerIn("channel-composer", false);
    this.threadComposer = this.#composerIn("thread-composer", true);
    this.#listen();
  }

  #composerIn(id, inThread) {
    const send = (text, files) => this.#say(text, files, inThread ? this.model.thread : null);
    return new Composer($(id), this.model, this.outbox, { send, editLast: () => this.#editLast(inThread) });
  }

  #listen() {
    const { model } = this;
    model.addEventListener("message", ({ detail }) => this.#messageChanged(detail));
    model.addEventListener("navigation", () => this.#navigated());
    model.addEventListener("status", ({ detail }) => this.#statusChanged(detail));
    model.addEventListener("topic", ({ detail }) => this.#topicChanged(detail));
    $("close-thread").addEventListener("click", () => model.openThread(null));
    $("tab-home").addEventListener("click", () => model.openHome());
    $("tab-messages").addEventListener("click", () => this.openDirect(model.bot.user_id));
    addEventListener("focus", () => { if (!model.atHome) model.read(model.channel); });
  }

  start() {
    const { model } = this;
    const left = JSON.parse(sessionStorage.getItem(PLACE) || "{}");
    const first = [...model.channels.values()].find((channel) => !channel.is_im && !channel.is_archived);
    const begun = model.channels.has(left.channel) ? left.channel : first?.id;
    model.channel = begun ?? null;
    if (left.atHome || !begun) model.openHome();
    else model.openChannel(begun);
    if (!model.atHome && begun === left.channel && left.thread) model.openThread(left.thread);
    this.modals.draw();
  }

  /** The workspace is reachable again. */
  connected() {
    this.outbox.flush();
  }

  /** Fetch again what may have been missed. */
  async reload() {
    this.model.refresh(await this.api.boot());
    return this.model.atHome ? this.home.open() : this.#load();
  }

  /** Go to a place of the switcher. */
  async go({ channel, home, user, shortcut, ts, thread }) {
    if (shortcut) return this.api.page("shortcut", { callback_id: shortcut });
    if (home) return this.model.openHome();
    if (user) return this.openDirect(user);
    if (!this.model.channels.has(channel)) this.model.addChannel((await this.api.call("conversations.info", { channel })).channel);
    Object.assign(this.model, { channel, thread: null, atHome: false });
    if (thread) this.model.thread = thread;
    await this.#navigated();
    this.model.read(channel);
    if (ts && !thread) await this.#backTo(ts);
    if (ts) (thread ? this.threadList : this.channelList).reveal(ts);
    return undefined;
  }

  async openDirect(user) {
    try {
      const { channel } = await this.api.call("conversations.open", { users: user });
      this.model.addChannel(channel);
      this.model.openChannel(channel.id);
    } catch (error) {
      notice(words(error));
    }
  }

  /** Focus the composer. */
  write() {
    if (!this.model.atHome) this.#composer(this.model.thread).focus();
  }

  async #say(text, files, thread) {
    const channel = this.model.channel;
    if (files.length) {
      this.uploads = !thread;
      return this.api.upload(channel, files, escape(text), thread);
    }
    const slash = !thread && this.#slash(text);
    if (slash) return this.api.slash(channel, slash.command, slash.text);
    return this.outbox.send({ id: crypto.randomUUID(), channel, thread, text });
  }

  async #post({ id, channel, thread, text }) {
    const answer = await this.api.post({ channel, text: escape(text), client_msg_id: id, ...(thread && { thread_ts: thread }) });
    if (!thread) this.said = answer.ts;
    this.model.apply({ ...answer.message, type: "message", channel });
    return answer;
  }

  /** A command of the app; any other text that begins with a slash is a message. */
  #slash(text) {
    const [, command, rest] = text.match(/^(\/\S+)(?:\s+([\s\S]*))?$/) || [];
    return this.model.offers.commands.some((known) => known.command === command) && { command, text: rest || "" };
  }

  #edit({ channel, ts, text }, inThread) {
    const save = (changed) => this.api.call("chat.update", { channel, ts, text: escape(changed) });
    const before = typed(text || "").replace(/<@(\w+)>/g, (_, id) => `@${this.model.userName(id)}`);
    this.#composer(inThread).edit(before, save, `edit ${placeOf(channel, ts)}`);
  }

  #editLast(inThread) {
    const last = this.model.newestOwn(this.model.channel, inThread ? this.model.thread : null);
    if (last) this.#edit(last, inThread);
    return Boolean(last);
  }

  async #remove({ channel, ts }, inThread) {
    const text = "If no agent has started on it, its task is cancelled.";
    if (!(await ask({ title: "Delete this message?", text, yes: "Delete", isDangerous: true }))) return;
    try {
      await this.api.call("chat.delete", { channel, ts });
    } catch (error) {
      this.#composer(inThread).complain(`Not deleted. ${words(error)}`);
    }
  }

  #composer(inThread) {
    return inThread ? this.threadComposer : this.channelComposer;
  }

  #messageChanged({ channel, ts, root, isNew, mine }) {
    if (channel !== this.model.channel || this.model.atHome) {
      if (!this.model.channels.has(channel)) this.#meet(channel);
      return;
    }
    const show = isNew && mine;
    this.channelList.refresh(ts, show && (!root || root === ts));
    if (isNew && mine) this.suggestions.draw();
    if (isNew && mine && !root && this.uploads && this.model.of(channel).get(ts).files) {
      this.said = ts;
      this.uploads = false;
    }
    if (root && root !== ts) this.channelList.refresh(root);
    const thread = this.model.thread;
    if (thread && (ts === thread || root === thread)) this.threadList.refresh(ts, show && root === thread);
    if (isNew && !mine && root && (root === this.said || (!thread && this.model.of(channel).get(root)?.user === this.model.me.id))) this.#offerThread(root);
  }

  /** A direct conversation that somebody else started. */
  async #meet(channel) {
    const told = await this.api.call("conversations.info", { channel }).catch(() => null);
    if (told) this.model.addChannel(told.channel);
  }

  #statusChanged({ channel, root }) {
    if (channel !== this.model.channel) return;
    this.channelList.refresh(root);
    this.#showStatus();
  }

  #showStatus() {
    const status = this.model.thread && this.model.statusOf(this.model.channel, this.model.thread);
    $("thread-status").textContent = status ? `${this.model.bot.name} ${status}` : "";
  }

  async #topicChanged({ channel }) {
    const told = await this.api.call("conversations.info", { channel }).catch(() => null);
    if (!told) return;
    this.model.addChannel(told.channel);
    if (channel === this.model.channel) this.#title();
  }

  /** The first answer to one's own message opens its thread, if there is room and nobody is writing. */
  #offerThread(root) {
    if (root === this.said) this.said = null;
    const idle = this.channelComposer.isIdle && this.threadComposer.isIdle && !document.querySelector("dialog[open]");
    if (idle && root !== this.model.thread && matchMedia("(min-width: 861px)").matches) this.model.openThread(root);
  }

  async #navigated() {
    const { model } = this;
    const { channel, thread, atHome } = model;
    sessionStorage.setItem(PLACE, JSON.stringify({ channel, thread, atHome }));
    this.unreadSince = model.unread.get(channel)?.since || (this.seen === channel ? this.unreadSince : "");
    this.seen = channel;
    this.#title();
    $("home").hidden = !atHome;
    $("messages").hidden = $("channel-composer").hidden = atHome;
    $("thread").hidden = !thread;
    this.suggestions.draw();
    model.dispatchEvent(new CustomEvent("channels"));
    if (atHome) return void (await this.#atHome());
    const { is_archived: isArchived } = model.channels.get(channel);
    this.channelComposer.moveTo(channel, `Message ${model.channelName(channel, "#")}`);
    $("thread-place").textContent = model.channelName(channel, "#");
    if (thread) this.threadComposer.moveTo(placeOf(channel, thread), "Reply…");
    for (const composer of [this.channelComposer, this.threadComposer]) composer.allow(!isArchived, "This channel is archived.");
    this.#showStatus();
    await this.#load();
    // If the person has moved on meanwhile, the focus is elsewhere.
    if (channel !== model.channel || thread !== model.thread || model.atHome) return;
    const isBusy = this.channelComposer.isInUse || document.querySelector("dialog[open]");
    // On a phone, a text box would raise the keyboard over what one wants to read.
    if (!isBusy) (isTouch() ? (thread ? this.threadList : this.channelList).root : this.#composer(thread)).focus({ preventScroll: true });
  }

  async #atHome() {
    this.drawn = {};
    const channel = await this.home.open();
    if (channel && !this.model.channels.has(channel)) this.model.addChannel((await this.api.call("conversations.info", { channel })).channel);
  }

  #title() {
    const { model } = this;
    const channel = model.channels.get(model.channel);
    const isApp = model.atHome || channel.user === model.bot.user_id;
    $("channel-name").textContent = isApp ? model.bot.name : model.channelName(model.channel, "# ");
    $("channel-topic").textContent = isApp ? "" : channel.topic?.value || "";
    $("about").hidden = isApp || channel.is_im;
    $("app-tabs").hidden = !isApp;
    $("tab-home").setAttribute("aria-current", String(model.atHome));
    $("tab-messages").setAttribute("aria-current", String(!model.atHome));
  }

  async #load() {
    const { channel, thread } = this.model;
    try {
      await this.history.newest(channel);
      if (thread) await this.history.thread(channel, thread);
    } catch (error) {
      notice(words(error));
    }
    if (channel !== this.model.channel || thread !== this.model.thread || this.model.atHome) return;
    this.channelList.draw(this.#empty(), { unreadSince: this.unreadSince, stays: this.drawn.channel === channel });
    this.suggestions.draw();
    if (thread) this.threadList.draw(null, { stays: this.drawn.thread === thread });
    this.drawn = { channel, thread };
  }

  /** Somebody has scrolled to the top. */
  async #older() {
    const { channel } = this.model;
    try {
      if ((await this.history.older(channel)) && channel === this.model.channel) this.channelList.drawAbove();
    } catch (error) {
      notice(words(error));
    }
  }

  async #backTo(ts) {
    await this.history.backTo(this.model.channel, ts).catch((error) => notice(words(error)));
    this.channelList.draw(this.#empty(), { unreadSince: this.unreadSince, upTo: ts });
  }

  #empty() {
    const isDirect = this.model.channels.get(this.model.channel).is_im;
    const what = isDirect ? "This is the beginning of your conversation." : "Tell the agent of this repository what to do. It answers in a thread.";
    return tag("li", "empty", tag("h2", "", "No messages yet"), tag("p", "", what));
  }
}
