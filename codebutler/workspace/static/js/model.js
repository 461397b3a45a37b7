// The page's data: channels, their messages, their threads, modals. Events change it; views listen.

const SLACKBOT = "USLACKBOT";
const isReply = (message) => message.thread_ts && message.thread_ts !== message.ts;

export class Model extends EventTarget {
  constructor(boot) {
    super();
    Object.assign(this, { team: boot.team, me: boot.me, bot: boot.bot, isOwner: boot.is_owner });
    this.offers = { suggestions: boot.suggestions, commands: boot.commands, words: boot.words, shortcuts: boot.shortcuts };
    this.users = new Map(boot.users.map((user) => [user.id, user]));
    this.channels = new Map(boot.channels.map((channel) => [channel.id, channel]));
    this.modals = boot.modals;
    this.home = boot.home;
    this.messages = new Map();
    this.unread = new Map(); // channel -> {count, since}
    this.status = new Map();
    this.channel = null;
    this.atHome = false;
    this.thread = null;
    this.changes = 0;
    this.viewChanges = 0;
    boot.statuses.forEach((status) => this.#status(status));
    boot.channels.forEach((channel) => this.#marked(channel.id, channel));
  }

  userName(id) {
    return this.users.get(id)?.name || (id === SLACKBOT ? "Slackbot" : id);
  }

  /** A conversation's name; `mark` adds the # of a channel. */
  channelName(id, mark = "") {
    const channel = this.channels.get(id);
    return channel.is_im ? this.userName(channel.user) : `${mark}${channel.name}`;
  }

  /** The person's direct conversation with the app, once there is one. */
  get botChannel() {
    return [...this.channels.values()].find((channel) => channel.is_im && channel.user === this.bot.user_id);
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
    const known = this.replies(channel, root).filter((message) => isReply(message) && !message.is_ephemeral).length;
    return Math.max(known, this.of(channel).get(root)?.reply_count || 0);
  }

  /** The person's newest own message in a channel or thread. */
  newestOwn(channel, thread) {
    const shown = thread ? this.replies(channel, thread) : this.roots(channel);
    return shown.findLast((message) => message.user === this.me.id && !message.subtype);
  }

  put(channel, message) {
    const { reactions, reply_count } = this.of(channel).get(message.ts) || {};
    // Fields that the new version lacks are removed (an edit without blocks removes them); these two are not content.
    this.of(channel).set(message.ts, { reactions, reply_count, ...message, channel, changed: this.changes });
  }

  /** A message as it was fetched after change number `since`; later events of the stream win. */
  fetched(channel, message, since) {
    if ((this.of(channel).get(message.ts)?.changed ?? -1) <= since) this.put(channel, message);
  }

  forget(channel, ts) {
    const gone = this.of(channel).get(ts);
    this.of(channel).delete(ts);
    this.#changed("message", { channel, ts, root: gone?.thread_ts });
  }

  /** A thread's first message leaves a mark, as in the history. */
  #deleted(channel, ts) {
    const gone = this.of(channel).get(ts);
    if (!gone || isReply(gone) || !this.replyCount(channel, ts)) return this.forget(channel, ts);
    this.put(channel, { ts, thread_ts: ts, user: SLACKBOT, subtype: "tombstone", text: "This message was deleted.", reactions: [] });
    return this.#changed("message", { channel, ts, root: ts });
  }

  /** There is a gap before `ts`: older messages are fetched again on demand. */
  forgetBefore(channel, ts) {
    for (const [known, message] of this.of(channel)) if (known < ts && !isReply(message)) this.of(channel).delete(known);
  }

  /** Replace everything but messages by the workspace's new data. */
  refresh(boot) {
    boot.users.forEach((user) => this.users.set(user.id, user));
    boot.channels.forEach((channel) => this.channels.set(channel.id, channel));
    boot.statuses.forEach((status) => this.#status(status));
    boot.channels.forEach((channel) => this.#marked(channel.id, channel));
    this.#views(boot);
    this.#changed("channels");
  }

  /** Apply an event of the stream, and tell the views what it changes. */
  apply(event) {
    this.changes += 1;
    switch (event.type) {
      case "message": return this.#message(event);
      case "reaction_added":
      case "reaction_removed": return this.#reaction(event);
      case "channel_created": return this.addChannel({ is_member: true, ...event.channel });
      case "channel_rename": return this.#channel(event.channel.id, { name: event.channel.name });
      case "channel_archive": return this.#channel(event.channel, { is_archived: true });
      case "channel_unarchive": return this.#channel(event.channel, { is_archived: false });
      case "channel_marked":
      case "im_marked": return this.#changed("channels", this.#marked(event.channel, event));
      case "team_join": return this.#changed("channels", this.users.set(event.user.id, event.user));
      case "assistant_status": return this.#status(event);
      case "views": return this.#views(event);
      default: return undefined;
    }
  }

  addChannel(channel) {
    this.channels.set(channel.id, { ...this.channels.get(channel.id), ...channel });
    this.#changed("channels");
  }

  openChannel(id) {
    Object.assign(this, { channel: id, thread: null, atHome: false });
    this.#changed("navigation");
    this.read(id);
  }

  openHome() {
    Object.assign(this, { thread: null, atHome: true });
    this.#changed("navigation");
  }

  openThread(root) {
    this.thread = root;
    this.#changed("navigation");
  }

  /** Everything in a channel has been seen. */
  read(id) {
    if (this.unread.delete(id)) this.#changed("channels");
  }

  /** How far the person has read, here or in another tab. */
  #marked(channel, { unread_count: count, unread_since: since }) {
    if (count && !this.#isSeen(channel)) this.unread.set(channel, { count, since });
    else this.unread.delete(channel);
  }

  /** The ts of the newest known message of a channel. */
  newest(channel) {
    return [...this.of(channel).keys()].reduce((newest, ts) => (ts > newest ? ts : newest), "");
  }

  get unreadCount() {
    return [...this.unread.values()].reduce((sum, { count }) => sum + count, 0);
  }

  #message(event) {
    const channel = event.channel;
    if (event.subtype === "message_deleted") return void this.#deleted(channel, event.deleted_ts);
    const changed = event.subtype === "message_changed";
    const message = changed ? event.message : event;
    const isNew = !this.of(channel).has(message.ts);
    const mine = message.user === this.me.id;
    this.put(channel, message);
    if (event.subtype === "channel_topic") this.#changed("topic", { channel });
    if (isNew && !changed && !mine) this.#count(channel, message.ts);
    this.#changed("message", { channel, ts: message.ts, root: message.thread_ts, isNew, mine });
  }

  #count(channel, ts) {
    if (this.#isSeen(channel)) return;
    const { count = 0, since = ts } = this.unread.get(channel) || {};
    this.unread.set(channel, { count: count + 1, since });
    this.#changed("channels");
  }

  #isSeen(channel) {
    return channel === this.channel && !this.atHome && document.hasFocus();
  }

  #channel(id, change) {
    Object.assign(this.channels.get(id), change);
    this.#changed("channels");
    if (id === this.channel) this.#changed("navigation");
  }

  #status({ channel, thread_ts: thread, status, lasts_s: lasts }) {
    const key = `${channel}:${thread}`;
    clearTimeout(this.status.get(key)?.timer);
    if (status) {
      const timer = setTimeout(() => this.#status({ channel, thread_ts: thread, status: "" }), lasts * 1000);
      this.status.set(key, { text: status, timer });
    } else this.status.delete(key);
    this.#changed("status", { channel, root: thread });
  }

  /** What the app says it is doing in a thread, or "". */
  statusOf(channel, root) {
    return this.status.get(`${channel}:${root}`)?.text || "";
  }

  #views({ modals, home }) {
    Object.assign(this, { modals, home });
    this.viewChanges += 1;
    this.#changed("views");
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
