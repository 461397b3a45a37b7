// The sections besides the repositories' table and the log.

import { asked, own } from "./decisions.js";
import { ago, clock, link, sync, tag, when } from "./dom.js";

const $ = (id) => document.getElementById(id);

/** Fill the list of a section, or say that it is empty. */
function fill(id, items, keyOf, make) {
  sync($(id).querySelector(".list"), items, keyOf, make);
  const empty = $(id).querySelector(".empty");
  if (empty) empty.hidden = items.length > 0;
  $(id).classList.toggle("is-empty", items.length === 0);
}

export function showVerdict({ state, text, waiting }) {
  const verdict = $("verdict");
  verdict.dataset.state = state;
  if (verdict.textContent !== text) verdict.textContent = text;
  const mark = waiting ? `(${waiting}) ` : "";
  document.title = `${mark}${state === "trouble" ? "⚠ " : ""}CodeButler dashboard`;
}

export function showFacts(system, chats) {
  const facts = [
    ...chats.map((chat) => ({
      name: chat.name,
      value: chat.is_well && chat.catching_up ? "connected, catching up" : chat.state,
      mark: chat.is_well ? "well" : "trouble",
      note: "last event {} ago",
      at: chat.heard_at,
    })),
    { name: "Reconnects", value: String(chats.reduce((sum, chat) => sum + chat.reconnects, 0)) },
    { name: "Inbox", value: String(system.journal), hint: "received from a chat, not yet accepted by a worker" },
    { name: "Outbox", value: String(system.outbox), hint: "answered by workers, not yet posted" },
    { name: "Process", value: `pid ${system.pid}`, note: "up {}", at: system.since },
    { name: "Version", value: system.version },
  ];
  sync($("facts"), facts, ({ name }) => name, fact);
}

function fact({ name, value, mark, note, at, hint }) {
  const shown = tag("dd", "", value);
  if (mark) shown.dataset.mark = mark;
  const box = tag("div", "", tag("dt", "", name), shown);
  if (note && at) box.append(tag("dd", "quiet", ago(at, note)));
  if (hint) box.title = hint;
  return box;
}

export function showTroubles(troubles) {
  $("troubles").hidden = troubles.length === 0;
  fill("troubles", troubles, ({ repo, text }) => `${repo}/${text}`, ({ repo, text }) =>
    tag("li", "", ...(repo ? [tag("strong", "name", repo)] : []), tag("span", "text", text)));
}

export function showNeeds(needs, acts) {
  fill("needs", needs, ({ key }) => key, (turn) => {
    const under = foot(turn, "for {}", "Open the thread");
    const made = tag("li", "turn", head(turn), tag("p", "text quoted", turn.text), under);
    if (turn.asked.length) under.append(tag("span", "buttons", ...own(turn, acts)));
    else made.append(tag("p", "what", turn.what), tag("p", "buttons", ...own(turn, acts)));
    made.append(...asked(turn, acts));
    return made;
  });
}

export function showWork(work, acts) {
  fill("work", work, ({ key }) => key, (turn) => {
    const under = foot(turn, turn.state === "running" ? "for {}" : "queued for {}", "Thread");
    under.append(tag("span", "buttons", ...own(turn, acts)));
    return tag("li", `turn ${turn.state}`, head(turn, turn.state), tag("p", "text", turn.text), under);
  });
}

export function showRecent(recent) {
  fill("recent", recent, ({ key }) => key, (turn) =>
    tag("li", "turn", head(turn, turn.state), tag("p", "text", turn.text), foot(turn, "{} ago", "Thread")));
}

function head(turn, state = "") {
  const shown = tag("p", "over", tag("strong", "name", turn.repo));
  if (!state) return shown;
  const badge = tag("span", "state", state);
  badge.dataset.state = state;
  shown.append(badge);
  return shown;
}

function foot(turn, form, words) {
  const parts = [turn.agent, ago(turn.since, form), turn.cost].filter((part) => part && (part.nodeType !== Node.TEXT_NODE || part.data));
  const shown = tag("p", "under");
  for (const part of parts) shown.append(tag("span", "", part));
  if (turn.changes) {
    const page = Object.assign(tag("a", "", "Changes"), { href: turn.changes, ariaLabel: `Changes: ${turn.repo}, ${turn.text}` });
    shown.append(page);
  }
  if (turn.page) shown.append(Object.assign(tag("a", "", "Transcript"), { href: turn.page, ariaLabel: `Transcript: ${turn.repo}, ${turn.text}` }));
  if (turn.url) {
    const way = link(words, turn.url);
    way.ariaLabel = `${words}: ${turn.repo}, ${turn.text}`;
    shown.append(way);
  }
  return shown;
}

const DEEDS = { run: "Run now", pause: "Pause", resume: "Resume", cancel: "Cancel" };

export function showJobs(jobs, acts) {
  fill("jobs", jobs, ({ key }) => key, (job) => {
    const last = job.last_ok === null ? "" : job.last_ok ? "last run ok" : "last run failed";
    const under = tag("p", "under", tag("span", "", job.repo), tag("span", "", job.when));
    if (last) under.append(Object.assign(tag("span", job.last_ok ? "" : "bad", last), { title: when(job.last).toLocaleString?.() ?? "" }));
    const next = job.state ? tag("span", "state", job.state) : job.next ? ago(job.next, "in {}") : tag("span", "", "on its event");
    under.append(tag("span", "buttons", ...job.can.map((how) =>
      acts.button(DEEDS[how], "", `${job.repo}, ${job.title}`, () => ({ do: "job", repo: job.repo, name: job.name, how })))));
    return tag("li", "job", tag("p", "over", tag("strong", "name", job.title), next), under);
  });
}

export function showErrors(errors) {
  fill("errors", [...errors].reverse(), ({ at, text }) => `${at}${text}`, ({ at, repo, text }) =>
    tag("li", "", tag("p", "over", repo ? tag("strong", "name", repo) : "", ago(at)), tag("p", "text", text)));
}

export function showConnection(state, since, why) {
  const connection = $("connection");
  connection.dataset.state = state;
  document.body.classList.toggle("lost", state === "lost");
  $("before").hidden = state === "up";
  const words = state === "up" ? "Live" : `Not connected since ${clock(since)}. ${why || "Trying again…"}`;
  if (connection.textContent !== words) connection.textContent = words;
}
