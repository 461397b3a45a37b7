// Typed text is plain text: Slack's three control characters are sent escaped.

export const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
export const unescape = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

/** A text of the workspace as a person would type it, without the brackets around addresses. */
export const typed = (text) => unescape(text.replace(/<(https?:[^|>]+)(?:\|[^>]*)?>/g, "$1"));

/** The words of a Markdown or mrkdwn text, for one line. */
export const unmarked = (text) => text
  .replace(/\[([^\]]*)\]\([^)\s]*\)/g, "$1")
  .replace(/```\w*|[`~]|\*+(?=\S)|(?<=\S)\*+/g, "")
  .replace(/(?<!\w)_(\S(?:.*?\S)?)_(?!\w)/g, "$1");

/** The time of day of a message. */
export const time = (ts) => new Date(Number(ts) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

/** The day of a message in words. */
export function day(ts) {
  const date = new Date(Number(ts) * 1000);
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return "Today";
  today.setDate(today.getDate() - 1);
  if (date.toDateString() === today.toDateString()) return "Yesterday";
  return date.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year: "numeric" });
}

/** A number of bytes for people. */
export const size = (bytes) => (bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
