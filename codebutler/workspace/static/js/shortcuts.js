// The keys of the page, in one place: what they do and how they are shown.

import { dialog, tag } from "./dom.js";

const HELP = [
  ["Ctrl K", "Jump to a channel or search messages"],
  ["/", "Write in the channel, or start a command"],
  ["↑", "Edit your last message (in an empty box)"],
  ["Tab", "Accept the first completion of /, !, @ or :"],
  ["↑ ↓", "Move between messages, once one has the focus"],
  ["T", "Reply in the thread of that message"],
  ["R", "React to it"],
  ["E", "Edit it, if it is yours"],
  ["Delete", "Delete it"],
  ["Enter", "Send"],
  ["Shift Enter", "A new line"],
  ["Esc", "Close a dialog, then the thread"],
  ["Alt ↑ ↓", "The channel above or below"],
  ["?", "This list"],
];

/** The list of keys. */
export function showShortcuts() {
  dialog("Keys", "panel", tag("div", "panel-body", tag("dl", "keys", ...HELP.flatMap(([keys, what]) => [
    tag("dt", "", ...keys.split(" ").map((key) => tag("kbd", "", key))), tag("dd", "", what),
  ]))));
}

/** Call `actions` {jump, write, step, leave} for the page's keys; not while a text box or dialog uses them. */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
    const isFree = !document.querySelector("dialog[open]");
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && isFree) {
      event.preventDefault();
      actions.jump();
    } else if (!isFree) return;
    else if (event.key === "Escape") document.querySelector(":popover-open") || actions.leave();
    else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      actions.step(event.key === "ArrowDown" ? 1 : -1);
    } else if (isTyping || !plain) return;
    else if (event.key === "/") actions.write();
    else if (event.key === "?") showShortcuts();
  });
}
