// What the page knows: channels, their messages, their threads. Events change it; views listen.

const isReply = (message) => message.thread_ts && message.thread_ts !== message.ts;

export class Model extends EventTarget {
  constructor(boot) {
    super();
    this.team = boot.team;
    this.me = boot.me;
    this.bot = boot.bot;
    this.suggestions = boot.suggestions || [];
    this.users = new Map(boot.users.map((user) => [user.id, user]));
    this.channels = new Map(boot.channels.map((channel) => [channel.id, channel]));
    this.messages = new Map();
    this.unread = new Map();
    this.status = new Map();
    this.channel = null;
    this.thread = null;
    this.changes = 0;
  }

  userName(id) {
    return this.users.get(id)?.name || id;
  }

  of(channel) {
    if (!this.messages.has(channel)) this.messages.set(channel, new Map());
    return this.messages.get(channel);
  }

  /** Top-level messages of a channel, oldest first. */
  roots(channel) {
    return this.#sorted(channel, (message) => !isReply(message) || message.subtype === "thread_broadcast");
  }

  /** A thread's messages, its first one included, oldest first. */
  replies(channel, root) {
    return this.#sorted(channel, (message) => message.ts === root || message.thread_ts === root);
  }

  replyCount(channel, root) {
    const known = this.replies(channel, root).filter(isReply).length;
    return Math.max(known, this.of(channel).get(root)?.reply_count || 0);
  }

  put(channel, message) {
    const { reactions, reply_count } = this.of(channel).get(message.ts) || {};
    // What the new version leaves out is gone (an edit without blocks removes them); these two are not content.
    this.of(channel).set(message.ts, { reactions, reply_count, ...message, channel, changed: this.changes });
  }

  /** A message as it was fetched after change number `since`; what the stream has told later wins. */
  fetched(channel, message, since) {
    if ((this.of(channel).get(message.ts)?.changed ?? -1) <= since) this.put(channel, message);
  }

  /** Take one event of the stream in and tell the views which message it touches. */
  apply(event) {
    this.changes += 1;
    if (event.type === "message") this.#message(event);
    else if (event.type === "reaction_added" || event.type === "reaction_removed") this.#reaction(event);
    else if (event.type === "channel_created") this.#changed("channels", this.channels.set(event.channel.id, event.channel));
    else if (event.type === "assistant_status") {
      this.status.set(`${event.channel}:${event.thread_ts}`, event.status);
      this.#changed("status", event);
    }
  }

  openChannel(id) {
    this.channel = id;
    this.thread = null;
    this.unread.delete(id);
    this.#changed("navigation");
  }

  openThread(root) {
    this.thread = root;
    this.#changed("navigation");
  }

  loaded() {
    this.#changed("loaded");
  }

  #message(event) {
    const channel = event.channel;
    if (event.subtype === "message_deleted") {
      const gone = this.of(channel).get(event.deleted_ts);
      this.of(channel).delete(event.deleted_ts);
      this.#changed("message", { channel, ts: event.deleted_ts, root: gone?.thread_ts });
      return;
    }
    const changed = event.subtype === "message_changed";
    const message = changed ? event.message : event;
    const isNew = !this.of(channel).has(message.ts);
    this.put(channel, message);
    if (isNew && channel !== this.channel && message.user !== this.me.id) {
      this.unread.set(channel, (this.unread.get(channel) || 0) + 1);
      this.#changed("channels");
    }
    this.#changed("message", { channel, ts: message.ts, root: message.thread_ts, isNew, mine: message.user === this.me.id && !message.bot_id });
  }

  #reaction({ type, user, reaction, item }) {
    const message = this.of(item.channel).get(item.ts);
    if (!message) return;
    const others = (message.reactions || []).map((r) => ({ ...r, users: (r.users || []).filter((u) => r.name !== reaction || u !== user) }));
    const mine = others.find((r) => r.name === reaction);
    if (type === "reaction_added") {
      if (mine) mine.users.push(user);
      else others.push({ name: reaction, users: [user] });
    }
    message.changed = this.changes;
    message.reactions = others.filter((r) => r.users.length).map((r) => ({ ...r, count: r.users.length }));
    this.#changed("message", { channel: item.channel, ts: item.ts, root: message.thread_ts });
  }

  #sorted(channel, keep) {
    return [...this.of(channel).values()].filter(keep).sort((a, b) => (a.ts < b.ts ? -1 : 1));
  }

  #changed(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}
