// The end of the log, and what is added to it.

import { clock, tag, when } from "./dom.js";

const MOST_LINES = 500;
const NEAR_END_PX = 40;
const $ = (id) => document.getElementById(id);

export class Log {
  /** `onWish` hears which lines are wanted. */
  constructor(onWish) {
    for (const id of ["log-repo", "log-level"]) $(id).addEventListener("change", () => onWish(this.wish));
  }

  get wish() {
    return { repo: $("log-repo").value, level: $("log-level").value };
  }

  /** These are the repositories to choose from; one that is chosen stays so. */
  offer(names) {
    const chosen = $("log-repo").value;
    const all = names.includes(chosen) || !chosen ? names : [...names, chosen];
    const options = [["", "all"], ...all.map((name) => [name, name])];
    $("log-repo").replaceChildren(...options.map(([value, words]) => new Option(words, value, false, value === chosen)));
  }

  apply({ past, lost, lines }) {
    const place = $("lines");
    const atEnd = past || this.isAtEnd;
    if (past) place.replaceChildren();
    if (lost) place.append(tag("li", "lost-lines", `${lost} lines came too fast to be shown: codebutler logs has them`));
    place.append(...lines.map(line));
    while (place.children.length > MOST_LINES) place.firstChild.remove();
    if (!place.children.length) place.append(tag("li", "quiet none", "No such lines."));
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
