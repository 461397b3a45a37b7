// Small helpers to make DOM nodes. Text never becomes markup.

/** An element with a class and children. */
export function tag(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** A link to the chat in a new tab; plain text if the address is not a web address. */
export function link(words, url) {
  if (!/^https?:\/\//.test(url)) return document.createTextNode(words);
  return Object.assign(tag("a", "", words), { href: url, target: "_blank", rel: "noopener noreferrer" });
}

/**
 * Make `place` hold one node for each item, in order. Unchanged nodes stay, with focus and selection. A worker may have
 * invented keys: two items with the same key are two nodes.
 */
export function sync(place, items, keyOf, make) {
  const old = new Map([...place.children].map((node) => [node.dataset.key, node]));
  const kept = new Set();
  let next = place.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const shown = JSON.stringify(item);
    let node = old.get(key);
    old.delete(key);
    if (!node || node.shown !== shown) {
      const made = make(item);
      made.dataset.key = key;
      made.shown = shown;
      if (node) {
        replace(node, made);
        if (next === node) next = made;
      }
      node = made;
    }
    kept.add(node);
    if (node === next) next = next.nextElementSibling;
    else place.insertBefore(node, next);
  }
  for (const node of [...place.children]) if (!kept.has(node)) remove(node);
}

const FOCUSED = "a, button, input";

/** The successor of the focused node gets the focus; unfinished text and ticked boxes stay. */
function replace(node, made) {
  const at = [...node.querySelectorAll(FOCUSED)].indexOf(document.activeElement);
  const written = new Map([...node.querySelectorAll("input")].map((field) => [field.name, field]));
  for (const field of made.querySelectorAll("input")) {
    const { value, checked, form } = written.get(field.name) ?? field;
    Object.assign(field, { value, checked });
    if (form && field.form) field.form.hidden = form.hidden;
  }
  node.replaceWith(made);
  if (at >= 0) made.querySelectorAll(FOCUSED)[at]?.focus();
}

/** If the focused node is removed, the heading above it gets the focus. */
function remove(node) {
  const heading = node.contains(document.activeElement) && node.closest("section")?.querySelector("h2");
  node.remove();
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus();
}

/** The moment for people; "" if it is not valid. */
export function when(iso) {
  const at = new Date(iso ?? "");
  return Number.isNaN(at.getTime()) ? "" : at;
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

/** 14:02:09. */
export const clock = (at) => at.toLocaleTimeString("en-GB", { ...CLOCK, second: "2-digit" });

/** How far away in one word: "now", "5 min", "3 h", "2 d". */
export function span(milliseconds) {
  const minutes = Math.floor(Math.abs(milliseconds) / 60000);
  if (minutes < 1) return `${Math.floor(Math.abs(milliseconds) / 1000)} s`;
  if (minutes < 60) return `${minutes} min`;
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`;
}

/** A moment as its distance from now, updated by `tick`. `form` is the text around it: "{} ago". */
export function ago(iso, form = "{} ago") {
  const at = when(iso);
  if (!at) return document.createTextNode("");
  const node = Object.assign(tag("time", "age"), { dateTime: at.toISOString(), title: at.toLocaleString() });
  node.dataset.form = form;
  tell(node, Date.now());
  return node;
}

/** Update all ages; `skew` is by how many milliseconds the supervisor's clock is ahead of ours. */
export function tick(skew) {
  for (const node of document.querySelectorAll("time.age")) tell(node, Date.now() + skew);
}

function tell(node, now) {
  const words = node.dataset.form.replace("{}", span(new Date(node.dateTime) - now));
  if (node.textContent !== words) node.textContent = words;
}
