// The end of the log, and new lines.

import { clock, tag, when } from "./dom.js";

const MOST_LINES = 500;
const NEAR_END_PX = 40;
const TYPING_MS = 300;
const $ = (id) => document.getElementById(id);

export class Log {
  /** `onWish` is called with the filter for lines. */
  constructor(onWish) {
    for (const id of ["log-repo", "log-level"]) $(id).addEventListener("change", () => onWish(this.wish));
    let typing = 0;
    $("log-words").addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => onWish(this.wish), TYPING_MS);
    });
  }

  get wish() {
    return { repo: $("log-repo").value, level: $("log-level").value, words: $("log-words").value };
  }

  /** Set the repositories to choose from, here and in the search; the chosen one stays chosen. */
  offer(names) {
    for (const field of document.querySelectorAll("select.repositories")) {
      const chosen = field.value;
      const all = names.includes(chosen) || !chosen ? names : [...names, chosen];
      const options = [["", "all"], ...all.map((name) => [name, name])];
      field.replaceChildren(...options.map(([value, words]) => new Option(words, value, false, value === chosen)));
    }
  }

  apply({ past, lost, lines }) {
    const place = $("lines");
    const atEnd = past || this.isAtEnd;
    if (past) place.replaceChildren();
    if (lost) place.append(tag("li", "lost-lines", `${lost} lines came too fast to show: see codebutler logs`));
    place.append(...lines.map(line));
    while (place.children.length > MOST_LINES) place.firstChild.remove();
    if (!place.children.length) place.append(tag("li", "quiet none", "No matching lines."));
    else if (place.children.length > 1) place.querySelector(".none")?.remove();
    if (atEnd) this.toEnd();
  }

  get isAtEnd() {
    const place = $("lines");
    return place.scrollHeight - place.scrollTop - place.clientHeight < NEAR_END_PX;
  }

  toEnd() {
    $("lines").scrollTop = $("lines").scrollHeight;
  }
}

function line({ at, tag: kind, repo, text }) {
  const moment = when(at);
  const stamp = Object.assign(tag("time", "", moment ? clock(moment) : ""), { title: moment ? moment.toLocaleString() : "" });
  const made = tag("li", "", stamp, tag("span", "kind", kind), tag("span", "text", ...(repo ? [tag("span", "of", repo), " "] : []), text));
  made.dataset.kind = kind;
  return made;
}
