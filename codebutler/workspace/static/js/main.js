// The page's composition: who calls whom, and nothing else.

import { Api } from "./api.js";
import { Composer } from "./composer.js";
import { MessageList } from "./list.js";
import { MessageView } from "./message.js";
import { Model } from "./model.js";
import { follow } from "./stream.js";

const $ = (id) => document.getElementById(id);

class Page {
  constructor(api, model) {
    this.api = api;
    this.model = model;
    const view = new MessageView(api, model);
    this.channelList = new MessageList($("messages"), view, () => model.roots(model.channel), false);
    this.threadList = new MessageList($("replies"), view, () => model.replies(model.channel, model.thread), true);
    this.channelComposer = new Composer($("channel-composer"), (text, files) => this.#say(text, files));
    this.threadComposer = new Composer($("thread-composer"), (text, files) => this.#say(text, files, model.thread));
    model.addEventListener("message", ({ detail }) => this.#messageChanged(detail));
    model.addEventListener("channels", () => this.#drawChannels());
    model.addEventListener("navigation", () => this.#navigated());
    $("close-thread").addEventListener("click", () => model.openThread(null));
    $("menu").addEventListener("click", () => $("sidebar").classList.toggle("open"));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && model.thread) model.openThread(null); });
  }

  async start() {
    $("team").textContent = this.model.team.name;
    $("me").textContent = this.model.me.name;
    this.model.openChannel([...this.model.channels.keys()][0]);
    follow(this.api.streamUrl(), {
      onEvent: (event) => this.model.apply(event),
      onReset: () => this.#load(),
      onState: (up) => {
        $("connection").textContent = up ? "connected" : "connection lost, trying again…";
        $("connection").classList.toggle("lost", !up);
      },
    });
  }

  async #say(text, files, thread) {
    const channel = this.model.channel;
    if (files.length) return this.api.upload(channel, files, escape(text), thread);
    const slash = !thread && text.match(/^\/butler(?:\s+([\s\S]*))?$/);
    if (slash) return this.api.slash(channel, "/butler", slash[1] || "");
    const answer = await this.api.call("chat.postMessage", { channel, text: escape(text), ...(thread && { thread_ts: thread }) });
    this.model.apply({ ...answer.message, type: "message", channel });
    return answer;
  }

  #messageChanged({ channel, ts, root, isNew, mine }) {
    if (channel !== this.model.channel) return;
    this.channelList.refresh(ts);
    if (root && root !== ts) this.channelList.refresh(root);
    const thread = this.model.thread;
    if (thread && (ts === thread || root === thread)) this.threadList.refresh(ts);
    if (isNew && !mine && root && !thread && this.model.of(channel).get(root)?.user === this.model.me.id) this.#offerThread(root);
  }

  /** The first answer to one's own message opens its thread, where there is room for it. */
  #offerThread(root) {
    if (matchMedia("(min-width: 861px)").matches) this.model.openThread(root);
  }

  async #navigated() {
    const { channel, thread } = this.model;
    const { name, topic } = this.model.channels.get(channel);
    $("channel-name").textContent = `# ${name}`;
    $("channel-topic").textContent = typeof topic === "string" ? topic : topic?.value || "";
    document.title = `#${name} · ${this.model.team.name}`;
    $("sidebar").classList.remove("open");
    $("thread").hidden = !thread;
    this.#drawChannels();
    this.channelComposer.moveTo(channel, `Message #${name}`);
    if (thread) this.threadComposer.moveTo(`${channel}:${thread}`, "Reply…");
    await this.#load();
    (thread ? this.threadComposer : this.channelComposer).focus();
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
  const problem = Object.assign(document.createElement("p"), { className: "problem", textContent: text });
  $("messages").replaceChildren(problem);
}

async function main() {
  const token = takeToken();
  if (!token) return explain("Open the address that CodeButler printed: it carries the key to this workspace.");
  const api = new Api(token);
  try {
    return await new Page(api, new Model(await api.boot())).start();
  } catch (error) {
    return explain(`The workspace does not answer (${error.message}). Is CodeButler still running? Use the address it printed last.`);
  }
}

main();
