// The page's composition: who calls whom, and nothing else.

import { Api } from "./api.js";
import { Composer } from "./composer.js";
import { MessageList } from "./list.js";
import { MessageView } from "./message.js";
import { Model } from "./model.js";
import { follow } from "./stream.js";

const $ = (id) => document.getElementById(id);

const ANOTHER_KEY = "This address is of an earlier start. Open the one that CodeButler printed last: its key is new.";
const CONNECTION = { up: "connected", lost: "connection lost, trying again…", refused: ANOTHER_KEY };

class Page {
  constructor(api, model) {
    this.api = api;
    this.model = model;
    this.said = null; // the person's newest message in the channel, while its first answer is awaited
    const view = new MessageView(api, model, {
      edit: (message, inThread) => this.#edit(message, inThread),
      remove: (message, inThread) => this.#remove(message, inThread),
    });
    this.channelList = new MessageList($("messages"), view, () => model.roots(model.channel), false);
    this.threadList = new MessageList($("replies"), view, () => model.replies(model.channel, model.thread), true);
    this.channelComposer = new Composer($("channel-composer"), (text, files) => this.#say(text, files));
    this.threadComposer = new Composer($("thread-composer"), (text, files) => this.#say(text, files, model.thread));
    model.addEventListener("message", ({ detail }) => this.#messageChanged(detail));
    model.addEventListener("channels", () => this.#drawChannels());
    model.addEventListener("navigation", () => this.#navigated());
    $("close-thread").addEventListener("click", () => model.openThread(null));
    $("menu").addEventListener("click", () => this.#showMenu(!$("sidebar").classList.contains("open")));
    document.addEventListener("pointerdown", ({ target }) => { if (!target.closest("#sidebar, #menu")) this.#showMenu(false); });
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  async start() {
    $("team").textContent = this.model.team.name;
    $("me").textContent = this.model.me.name;
    this.model.openChannel([...this.model.channels.keys()][0]);
    follow(this.api.streamUrl(), {
      onEvent: (event) => this.model.apply(event),
      onReset: () => this.#load(),
      onState: (state) => {
        $("connection").textContent = CONNECTION[state];
        $("connection").classList.toggle("lost", state !== "up");
      },
    });
  }

  async #say(text, files, thread) {
    const channel = this.model.channel;
    if (files.length) return this.api.upload(channel, files, escape(text), thread);
    const slash = !thread && text.match(/^\/butler(?:\s+([\s\S]*))?$/);
    if (slash) return this.api.slash(channel, "/butler", slash[1] || "");
    const answer = await this.api.call("chat.postMessage", { channel, text: escape(text), ...(thread && { thread_ts: thread }) });
    if (!thread) this.said = answer.ts;
    this.model.apply({ ...answer.message, type: "message", channel });
    return answer;
  }

  #edit({ channel, ts, text }, inThread) {
    const save = (changed) => this.api.call("chat.update", { channel, ts, text: escape(changed) });
    this.#composer(inThread).edit(unescape(text || ""), save);
  }

  async #remove({ channel, ts }, inThread) {
    if (!confirm("Delete this message? What it asks for is withdrawn if nobody works on it yet.")) return;
    try {
      await this.api.call("chat.delete", { channel, ts });
    } catch (error) {
      this.#composer(inThread).complain(`Not deleted (${error.message}).`);
    }
  }

  #composer(inThread) {
    return inThread ? this.threadComposer : this.channelComposer;
  }

  #key(event) {
    if (event.key !== "Escape") return;
    if ($("sidebar").classList.contains("open")) this.#showMenu(false);
    else if (this.model.thread) this.model.openThread(null);
  }

  #showMenu(open) {
    $("sidebar").classList.toggle("open", open);
    $("menu").setAttribute("aria-expanded", String(open));
  }

  #messageChanged({ channel, ts, root, isNew, mine }) {
    if (channel !== this.model.channel) return;
    const show = isNew && mine;
    this.channelList.refresh(ts, show && (!root || root === ts));
    if (root && root !== ts) this.channelList.refresh(root);
    const thread = this.model.thread;
    if (thread && (ts === thread || root === thread)) this.threadList.refresh(ts, show && root === thread);
    if (isNew && !mine && root && (root === this.said || (!thread && this.model.of(channel).get(root)?.user === this.model.me.id))) this.#offerThread(root);
  }

  /** The first answer to one's own message opens its thread, where there is room for it and nobody is just writing. */
  #offerThread(root) {
    if (root === this.said) this.said = null;
    const idle = this.channelComposer.isEmpty && this.threadComposer.isEmpty;
    if (idle && root !== this.model.thread && matchMedia("(min-width: 861px)").matches) this.model.openThread(root);
  }

  async #navigated() {
    const { channel, thread } = this.model;
    const { name, topic } = this.model.channels.get(channel);
    $("channel-name").textContent = `# ${name}`;
    $("channel-topic").textContent = typeof topic === "string" ? topic : topic?.value || "";
    document.title = `#${name} · ${this.model.team.name}`;
    this.#showMenu(false);
    $("thread").hidden = !thread;
    this.#drawChannels();
    this.channelComposer.moveTo(channel, `Message #${name}`);
    if (thread) this.threadComposer.moveTo(`${channel}:${thread}`, "Reply…");
    await this.#load();
    if (!this.channelComposer.isInUse) this.#composer(thread).focus();
  }

  async #load() {
    const { channel, thread } = this.model;
    const since = this.model.changes;
    const history = await this.api.call("conversations.history", { channel, limit: 200, include_all_metadata: false });
    history.messages.forEach((message) => this.model.fetched(channel, message, since));
    if (thread) {
      const replies = await this.api.call("conversations.replies", { channel, ts: thread, limit: 500 });
      replies.messages.forEach((message) => this.model.fetched(channel, message, since));
    }
    if (channel !== this.model.channel || thread !== this.model.thread) return;
    this.channelList.draw(this.#empty());
    if (thread) this.threadList.draw();
  }

  #empty() {
    const box = document.createElement("li");
    box.className = "empty";
    const title = Object.assign(document.createElement("h2"), { textContent: "Nobody has written here yet" });
    const text = Object.assign(document.createElement("p"), { textContent: "Write what the agent of this repository should do. It answers in the thread." });
    const row = Object.assign(document.createElement("div"), { className: "actions" });
    for (const suggestion of this.model.suggestions) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: suggestion });
      button.addEventListener("click", () => this.#say(suggestion, []));
      row.append(button);
    }
    box.append(title, text, row);
    return box;
  }

  #drawChannels() {
    const items = [...this.model.channels.values()].map((channel) => {
      const item = document.createElement("li");
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: `# ${channel.name}` });
      button.setAttribute("aria-current", String(channel.id === this.model.channel));
      const unread = this.model.unread.get(channel.id);
      if (unread) button.append(Object.assign(document.createElement("span"), { className: "unread", textContent: unread }));
      button.addEventListener("click", () => this.model.openChannel(channel.id));
      item.append(button);
      return item;
    });
    $("channels").replaceChildren(...items);
  }
}

/** What a person types is text: Slack's three control characters travel escaped. */
const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const unescape = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

/** The token comes in the address once, then lives in this tab only. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return given || sessionStorage.getItem("token");
}

function explain(text) {
  document.body.className = "closed";
  $("channel-name").textContent = "CodeButler";
  $("messages").replaceChildren(Object.assign(document.createElement("li"), { className: "problem", textContent: text }));
}

async function main() {
  const token = takeToken();
  if (!token) return explain("Open the address that CodeButler printed: it carries the key to this workspace.");
  const api = new Api(token);
  try {
    return await new Page(api, new Model(await api.boot())).start();
  } catch (error) {
    if (error.message === "HTTP 401") return explain(ANOTHER_KEY);
    return explain(`The workspace does not answer (${error.message}). Is CodeButler still running? Use the address it printed last.`);
  }
}

main();
