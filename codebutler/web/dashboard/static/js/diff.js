// A file's changed lines as a table, unified or side by side. Text never becomes markup.

import { tag } from "./dom.js";
import { coloured, grammar } from "./syntax.js";

const WHY = {
  binary: "Binary file not shown.",
  long: "Too many changed lines to show here: use !diff in the thread.",
  empty: "No changed lines: the file was renamed, or its permissions changed.",
};

/** All lines of a file in one list; each knows its hunk. */
export const linesOf = (file) => file.hunks.flatMap((hunk, at) => hunk.lines.map(([sign, old, now, text]) => ({ sign, old, now, text, hunk: at })));

export const why = (file) => WHY[file.shown];

/** The table's rows: a heading for each hunk, and the lines (`row.shows`: the indexes of the lines shown). */
export function rows(file, lines, view) {
  const finds = grammar(file.path);
  const made = [];
  let hunk = -1;
  for (const pair of view === "split" ? pairs(lines) : lines.map((_, at) => [at])) {
    const first = lines[pair.find((at) => at !== null)];
    if (first.hunk !== hunk) made.push(heading(file.hunks[(hunk = first.hunk)], first, view));
    made.push(view === "split" ? split(lines, pair, finds) : unified(lines, pair[0], finds));
  }
  return made;
}

/** The columns: the first row is a heading and cannot set their widths. */
export function columns(view) {
  const names = view === "split" ? ["num", "sign", "code", "num", "sign", "code"] : ["num", "num", "sign", "code"];
  return tag("colgroup", "", ...names.map((name) => tag("col", name)));
}

/** Removed lines beside the added ones: pairs of indexes, null where a side has none. */
function pairs(lines) {
  const made = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].sign === " ") {
      made.push([at, at]);
      at += 1;
      continue;
    }
    const run = (sign) => {
      const found = [];
      while (at < lines.length && lines[at].sign === sign && (!found.length || lines[at].hunk === lines[found[0]].hunk)) found.push(at++);
      return found;
    };
    const gone = run("-");
    const came = gone.length && lines[at]?.hunk !== lines[gone[0]].hunk ? [] : run("+");
    for (let row = 0; row < Math.max(gone.length, came.length); row += 1) made.push([gone[row] ?? null, came[row] ?? null]);
  }
  return made;
}

function heading({ title }, first, view) {
  const cell = tag("td", "", `Line ${first.now || first.old}${title ? ` · ${title}` : ""}`);
  cell.colSpan = view === "split" ? 6 : 4;
  return tag("tr", "at", cell);
}

const KIND = { "+": "add", "-": "del", " ": "" };

function unified(lines, at, finds) {
  const line = lines[at];
  const row = tag("tr", "line", number(line.old, at, KIND[line.sign]), number(line.now, at, KIND[line.sign]), ...code(line, at, finds));
  return Object.assign(row, { shows: [at] });
}

function split(lines, [left, right], finds) {
  const side = (at, which) => {
    if (at === null) return ["num none", "sign none", "code none"].map((name) => tag("td", name));
    const line = lines[at];
    return [number(line[which], at, KIND[line.sign], which), ...code(line, at, finds, which)];
  };
  const row = tag("tr", "line", ...side(left, "old"), ...side(right, "now"));
  return Object.assign(row, { shows: [left, right].filter((at) => at !== null) });
}

function number(value, at, kind, side = "") {
  const cell = tag("td", `num ${kind}`, value ? String(value) : "");
  Object.assign(cell.dataset, { at, side });
  return cell;
}

function code(line, at, finds, side = "") {
  const kind = KIND[line.sign];
  const cells = [tag("td", `sign ${kind}`, line.sign.trim()), tag("td", `code ${kind}`, ...coloured(line.text, finds))];
  for (const cell of cells) Object.assign(cell.dataset, { at, side });
  return cells;
}
