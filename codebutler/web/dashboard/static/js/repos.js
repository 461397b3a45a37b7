// The table of repositories.

import { link, sync, tag } from "./dom.js";

const MANY = 8; // from this number on, the table has a search field
const VERY_MANY = 25; // from this number on, the table scrolls separately
const NONE = "–";
const $ = (id) => document.getElementById(id);

export class Repos {
  constructor(acts) {
    this.acts = acts;
    this.known = new Map();
    this.names = [];
    $("find").addEventListener("input", () => this.show());
  }

  /** Show changes: of some repositories, and of the list of all. */
  apply({ repos = [], names }) {
    for (const repo of repos) this.known.set(repo.name, repo);
    if (names) this.names = names;
    if (repos.length || names) this.show();
  }

  show() {
    const wanted = $("find").value.trim().toLowerCase();
    const all = this.names.map((name) => this.known.get(name)).filter(Boolean);
    const shown = all.filter(({ name, agent, channel, state }) => [name, agent, channel, state].some((text) => text.toLowerCase().includes(wanted)));
    $("find-field").hidden = all.length <= MANY;
    $("repos").classList.toggle("many", all.length > VERY_MANY);
    $("repos-count").textContent = wanted ? `${shown.length} of ${all.length}` : all.length > 1 ? String(all.length) : "";
    sync($("repos").querySelector("tbody"), shown, ({ name }) => name, (repo) => row(repo, this.acts));
    $("repos").querySelector("table").hidden = all.length === 0;
    $("repos").querySelector(".empty").hidden = all.length > 0;
  }
}

function row(repo, acts) {
  const name = Object.assign(tag("th", "", tag("strong", "name", repo.name)), { scope: "row", title: repo.path });
  if (repo.host) name.append(tag("span", "quiet", ` on ${repo.host}`));
  if (repo.problem) name.append(tag("p", "problem", repo.problem));
  const state = tag("span", "state", repo.state);
  state.dataset.state = repo.state;
  const worker = cell("Worker", state);
  if (repo.restarts) worker.append(tag("span", "quiet", repo.restarts === 1 ? "1 restart" : `${repo.restarts} restarts`));
  if (repo.tend) worker.append(tend(repo, acts));
  return tag("tr", "", name, worker,
    cell("Agent", repo.agent || NONE),
    cell("Channel", repo.channel ? link(repo.channel, repo.url) : NONE),
    cell("Runs", repo.load || NONE),
    cell("Today", tag("span", "", repo.today), ...repo.budget.map(budget)),
    number("Memory", repo.memory_mb === null ? NONE : `${repo.memory_mb} MB`),
    number("Process", repo.pid === null ? NONE : String(repo.pid)));
}

/** Wake, start or restart the worker. */
function tend({ name, tend: how, state, load }, acts) {
  const label = how === "restart" ? "Restart" : state === "sleeping" ? "Wake" : "Start now";
  const lost = load ? " A run that does not end within 25 seconds is interrupted, and its thread asks whether to continue." : "";
  const sure = () => how !== "restart" || confirm(`Restart the worker of ${name}?${lost}`);
  return acts.button(label, "", name, () => sure() && { do: "worker", repo: name, how });
}

function cell(label, ...children) {
  const made = tag("td", children[0] === NONE ? "none" : "", ...children);
  made.dataset.label = label;
  return made;
}

function number(label, text) {
  const made = cell(label, text);
  made.classList.add("number");
  return made;
}

function budget({ words, share }) {
  const meter = Object.assign(document.createElement("meter"), { min: 0, max: 1, high: 0.8, optimum: 0, value: share });
  meter.setAttribute("aria-label", words);
  meter.title = words;
  return tag("span", "budget", meter);
}
