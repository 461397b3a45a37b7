// Small helpers to make DOM nodes. Text never becomes markup.

/** An element with a class and children. */
export function tag(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** A button that calls `act`; `label` is its accessible name if the content does not say it. */
export function button(content, className, act, label = "") {
  const node = tag("button", className, content);
  node.type = "button";
  if (label) {
    node.setAttribute("aria-label", label);
    node.title = label;
  }
  if (act) node.addEventListener("click", act);
  return node;
}

let serial = 0;
/** A unique id. */
export const uniqueId = (prefix) => `${prefix}-${(serial += 1)}`;

/** A labelled field: the label, the control, and a place for its error. */
export function field(label, control, hint = "") {
  control.id ||= uniqueId("field");
  const caption = Object.assign(tag("label", "", label), { htmlFor: control.id });
  const box = tag("div", "field", caption, control);
  if (hint) {
    const note = Object.assign(tag("p", "note", hint), { id: uniqueId("note") });
    control.setAttribute("aria-describedby", note.id);
    box.append(note);
  }
  return box;
}

/** Content that is too wide can be scrolled with the keyboard, too. */
export function reachable(root) {
  for (const wide of root.querySelectorAll("pre, table")) if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
}

const PATHS = {
  menu: "M3 5h14M3 10h14M3 15h14",
  close: "M5 5l10 10M15 5L5 15",
  search: "M9 3.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M13 13l4 4",
  plus: "M10 4v12M4 10h12",
  attach: "M15.5 9.5l-5.6 5.6a3.4 3.4 0 0 1-4.8-4.8l6-6a2.3 2.3 0 0 1 3.2 3.2l-5.9 5.9a1.1 1.1 0 0 1-1.6-1.6l5.2-5.2",
  microphone: "M10 3a2.2 2.2 0 0 1 2.2 2.2v4.3a2.2 2.2 0 0 1-4.4 0V5.2A2.2 2.2 0 0 1 10 3M5.5 9.5a4.5 4.5 0 0 0 9 0M10 14v3M7.5 17h5",
  stop: "M6 6h8v8H6z",
  theme: "M10 3.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M10 3.5v13a6.5 6.5 0 0 0 0-13",
  bolt: "M11 2.5L4.5 11.5H9.5L8.5 17.5L15.5 8H10.5z",
  keyboard: "M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M6.5 11.7h7",
  info: "M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M10 9.2v4.3M10 6.5h.01",
  smile: "M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M7.3 8h.01M12.7 8h.01M6.8 11.5c1.6 2.3 4.8 2.3 6.4 0",
  reply: "M8 5L3.5 9.5L8 14M4 9.5h7.5a5 5 0 0 1 5 5v1",
  edit: "M12.5 4.5l3 3L7 16H4v-3z",
  remove: "M4 6h12M8 6V4h4v2M5.5 6l.7 10.5h7.6L14.5 6M8.5 9v5M11.5 9v5",
  home: "M3.5 9.5L10 4l6.5 5.5M5.5 8.5V16h9V8.5M8.5 16v-4h3v4",
  file: "M5.5 3h6l3.5 3.5V17h-9.5zM11 3v4h4",
  more: "M5 10h.01M10 10h.01M15 10h.01",
};

/** A line icon in the colour of the text around it. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", name === "more" ? "icon-drawing dots" : "icon-drawing");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** A modal dialog with a title, closed by its button, by Escape and by a click outside; removed when closed. */
export function dialog(title, className, ...children) {
  const box = tag("dialog", className);
  const heading = Object.assign(tag("h2", "", title), { id: uniqueId("title") });
  box.setAttribute("aria-labelledby", heading.id);
  box.append(tag("header", "", heading, button(icon("close"), "icon", () => box.close(), "Close")), ...children);
  box.addEventListener("close", () => box.remove());
  box.addEventListener("pointerdown", (event) => { if (event.target === box) box.close(); });
  document.body.append(box);
  box.showModal();
  return box;
}

/** Ask for confirmation; returns whether the answer was yes. Escape or a click outside means no. */
export function ask({ title, text, yes, no = "Cancel", isDangerous = false }) {
  return new Promise((resolve) => {
    let answer = false;
    const choose = (chosen) => { answer = chosen; box.close(); };
    const confirmed = button(yes, isDangerous ? "danger" : "primary", () => choose(true));
    const box = dialog(title, "panel question", tag("div", "panel-body", ...[text].flat()), tag("footer", "", button(no, "", () => choose(false)), confirmed));
    box.addEventListener("close", () => resolve(answer));
    confirmed.focus();
  });
}
