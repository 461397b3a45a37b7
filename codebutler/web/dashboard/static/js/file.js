// One file of the page: its heading, its lines, the selection in it, and the comments on it.

import { tag } from "./dom.js";
import { columns, linesOf, rows, why } from "./diff.js";

export class FileSection {
  /** `notes`: the comments, kept by the page; `onChange()` is called when they change. */
  constructor(file, number, notes, onChange) {
    this.file = file;
    this.lines = linesOf(file);
    this.notes = notes;
    this.onChange = onChange;
    this.chosen = null; // { from, to, side }
    this.view = "";
    const title = tag("h2", "", file.old && file.old !== file.path ? `${file.old} → ${file.path}` : file.path);
    title.id = `title-${number}`;
    const comment = Object.assign(tag("button", "", "Comment on the file"), { type: "button" });
    comment.addEventListener("click", () => this.compose(null));
    this.talks = tag("div", "talks");
    this.node = tag("section", "file", tag("header", "", title, ...counts(file), comment), this.talks);
    Object.assign(this.node, { id: `file-${number}`, tabIndex: -1 });
    this.node.setAttribute("aria-labelledby", title.id);
    if (why(file)) this.node.append(tag("p", "", why(file)));
    if (this.lines.length) this.node.append((this.table = this.makeTable(title.id)));
  }

  makeTable(titleId) {
    this.body = tag("tbody", "");
    const table = tag("table", "lines", this.body);
    table.setAttribute("role", "grid");
    table.setAttribute("aria-labelledby", titleId);
    table.setAttribute("aria-multiselectable", "true");
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("keydown", (event) => this.pressed(event));
    return table;
  }

  show(view) {
    this.view = view;
    this.chosen = null;
    if (this.body) {
      this.table.querySelector("colgroup")?.remove();
      this.table.prepend(columns(view));
      this.body.replaceChildren(...rows(this.file, this.lines, view));
      for (const row of this.lineRows) Object.assign(row, { tabIndex: -1 });
      if (this.lineRows[0]) this.lineRows[0].tabIndex = 0;
    }
    this.showNotes();
  }

  get lineRows() {
    return this.body ? [...this.body.children].filter((row) => row.shows) : [];
  }

  /** The field of a comment that is being written. */
  get writing() {
    return this.node.querySelector(".composing textarea");
  }

  get own() {
    return this.notes.filter((note) => note.path === this.file.path);
  }

  // Choosing lines

  clicked(event) {
    const cell = event.target.closest("td.num");
    if (!cell?.dataset.at) return;
    const at = Number(cell.dataset.at);
    const { side } = cell.dataset;
    const goesOn = this.chosen?.side === side && (event.shiftKey || this.writing);
    const text = this.writing?.value ?? "";
    this.choose(goesOn ? this.chosen.from : at, at, side);
    this.compose(this.chosen, null, text);
  }

  pressed(event) {
    const row = event.target;
    if (!row.shows) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const all = this.lineRows;
      const next = all[all.indexOf(row) + step];
      if (!next) return;
      row.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      if (event.shiftKey) this.choose(this.chosen?.from ?? row.shows.at(-1), next.shows.at(-1), this.sideOf(next));
      else this.choose(null);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!this.chosen) this.choose(row.shows.at(-1), row.shows.at(-1), this.sideOf(row));
      this.compose(this.chosen);
    } else if (event.key === "Escape") this.choose(null);
  }

  sideOf(row) {
    return this.view === "split" ? row.querySelector(`.num[data-at="${row.shows.at(-1)}"]:last-of-type`)?.dataset.side || "now" : "";
  }

  choose(from, to = from, side = "") {
    this.chosen = from === null ? null : { from, to, side };
    const [low, high] = this.chosen ? [Math.min(from, to), Math.max(from, to)] : [1, 0];
    for (const row of this.lineRows) {
      let is = false;
      for (const cell of row.children) {
        const at = Number(cell.dataset.at);
        const isIn = cell.dataset.at !== undefined && at >= low && at <= high && cell.dataset.side === side;
        cell.classList.toggle("chosen", isIn);
        is ||= isIn;
      }
      if (is) row.setAttribute("aria-selected", "true");
      else row.removeAttribute("aria-selected");
    }
  }

  /** The selected lines: their numbers on one side, and their text. */
  range(chosen) {
    if (!chosen) return { first: 0, last: 0, side: "new", quote: [], end: -1 };
    const [low, high] = [Math.min(chosen.from, chosen.to), Math.max(chosen.from, chosen.to)];
    const meant = this.lines.slice(low, high + 1).filter((line) => !chosen.side || line[chosen.side]);
    const key = chosen.side || (meant.some((line) => line.now) ? "now" : "old");
    const numbers = meant.map((line) => line[key]).filter(Boolean);
    const quote = meant.map(({ sign, text }) => `${sign}${text}`);
    return { first: Math.min(...numbers), last: Math.max(...numbers), side: key === "old" ? "old" : "new", quote, end: high };
  }

  // Commenting

  compose(chosen, note = null, text = note?.text ?? "") {
    this.node.querySelector(".composing")?.remove();
    const range = note ?? this.range(chosen);
    const field = Object.assign(document.createElement("textarea"), { id: `words-${this.node.id}`, value: text, maxLength: 4000 });
    const add = Object.assign(tag("button", "main", note ? "Save" : "Add comment"), { type: "button" });
    const cancel = Object.assign(tag("button", "", "Cancel"), { type: "button" });
    const label = Object.assign(tag("label", "", `Comment on ${where(this.file, range)}`), { htmlFor: field.id });
    const done = () => {
      this.choose(null);
      this.showNotes();
      (this.rowAt(range.end) ?? this.node).focus({ preventScroll: true });
    };
    const save = () => {
      const words = field.value.trim();
      if (!words) return field.focus();
      if (note) note.text = words;
      else this.notes.push({ path: this.file.path, ...range, text: words });
      this.onChange();
      done();
    };
    add.addEventListener("click", save);
    cancel.addEventListener("click", done);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") done();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
      event.stopPropagation();
    });
    this.place(range.end, tag("div", "", label, field, tag("div", "acts", add, cancel)), "composing");
    field.focus();
  }

  showNotes() {
    for (const old of this.node.querySelectorAll(".talk")) old.remove();
    for (const note of this.own) {
      const edit = Object.assign(tag("button", "", "Edit"), { type: "button" });
      const drop = Object.assign(tag("button", "", "Delete"), { type: "button" });
      edit.addEventListener("click", () => this.compose(null, note));
      drop.addEventListener("click", () => {
        this.notes.splice(this.notes.indexOf(note), 1);
        this.onChange();
        this.showNotes();
        this.node.focus({ preventScroll: true });
      });
      this.place(note.end, tag("div", "", tag("p", "where", where(this.file, note)), tag("p", "words", note.text), tag("div", "acts", edit, drop)));
    }
  }

  /** Below the line, or below the heading if it is about the whole file. */
  place(end, content, name = "") {
    const row = this.rowAt(end);
    if (!row) return this.talks.append(Object.assign(content, { className: `talk ${name}` }));
    const cell = tag("td", "", content);
    cell.colSpan = row.children.length;
    let last = row;
    while (last.nextElementSibling?.classList.contains("talk")) last = last.nextElementSibling;
    last.after(tag("tr", `talk ${name}`, cell));
  }

  rowAt(end) {
    return this.lineRows.find((row) => row.shows.includes(end));
  }
}

/** `a.py:3-5`. */
export function where({ path }, { first, last, side }) {
  const lines = first ? `:${first === last ? first : `${first}-${last}`}` : "";
  return `${path}${lines}${side === "old" ? " (before the change)" : ""}`;
}

export function counts({ added, removed }) {
  if (added === null) return [tag("span", "quiet", "binary")];
  return [...(added ? [tag("span", "plus", `+${added}`)] : []), ...(removed ? [tag("span", "minus", `−${removed}`)] : [])];
}
