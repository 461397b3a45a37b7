// Moves between messages with the keyboard. Tab reaches a message's controls only from that message, so that nobody has
// to pass a hundred buttons on the way to the composer.

const ROVING = ".tools button, .reactions button, .replies, .byline button";
const KEYS = { r: "react", t: "reply", ArrowRight: "reply", e: "edit", Delete: "remove" };

const messageOf = (node) => node.closest?.(".message");

/** Remove a message and its controls from the Tab order, or add them to it. */
export function rove(item, isReachable = false) {
  item.tabIndex = isReachable ? 0 : -1;
  for (const control of item.querySelectorAll(ROVING)) control.tabIndex = isReachable ? 0 : -1;
}

/** Arrow keys move through a list of messages; single keys act on the focused one. */
export function walkable(root) {
  root.addEventListener("focusin", ({ target }) => { if (messageOf(target)) rove(messageOf(target), true); });
  root.addEventListener("focusout", ({ target, relatedTarget }) => {
    const left = messageOf(target);
    if (left && left !== (relatedTarget && messageOf(relatedTarget))) rove(left);
  });
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const item = event.target.matches(".message") ? event.target : null;
    if (event.target !== root && !item) return;
    if (go(root, item, event.key) || (item && use(item, event.key))) event.preventDefault();
  });
}

function go(root, item, key) {
  const all = [...root.querySelectorAll(":scope > .message")];
  const at = item ? all.indexOf(item) : all.length;
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: all.length - 1 }[key];
  if (to === undefined || !all.length) return false;
  const next = all[Math.max(0, Math.min(to, all.length - 1))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function use(item, key) {
  const tool = KEYS[key] && item.querySelector(`[data-tool=${KEYS[key]}]`);
  tool?.click();
  return Boolean(tool);
}
