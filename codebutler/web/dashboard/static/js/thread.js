// A thread's transcript: what people wrote, what was decided, what the agent answered.

import { Acts } from "./acts.js";
import { call } from "./call.js";
import { asked, says } from "./decisions.js";
import { link, sync, tag, when } from "./dom.js";
import { entered } from "./enter.js";

const $ = (id) => document.getElementById(id);
const SETTLED_MS = 2000; // by then the worker has handled the decision
const [REPO, RUN] = location.pathname.split("/").slice(2).map(decodeURIComponent);

async function show(key, acts) {
  const query = new URLSearchParams({ repo: REPO, run: RUN });
  const told = await call(key, `/dashboard/thread?${query}`);
  $("task").textContent = told.title || "Thread";
  document.title = `${told.title || "Thread"} · ${told.repo}`;
  $("about").textContent = `${told.repo} · ${told.runs.length} run${told.runs.length === 1 ? "" : "s"}`;
  const way = link("", told.url);
  if (way.href) Object.assign($("thread"), { href: way.href, hidden: false });
  $("more").hidden = !told.has_more;
  $("runs").replaceChildren(...told.runs.map(run));
  $("needs").hidden = !told.asked.length;
  const waiting = told.asked.length ? [{ id: RUN, repo: REPO, text: told.title, asked: told.asked }] : [];
  sync($("needs").querySelector(".list"), waiting, ({ id }) => id, (turn) => tag("li", "turn", ...asked(turn, acts)));
  document.body.classList.remove("closed");
  $("shut").hidden = true;
  $("page").hidden = false;
}

function run({ id, state, agent, at, cost, said, decided, answer, is_cut, changes }) {
  const badge = tag("span", "state", state);
  badge.dataset.state = state;
  const head = tag("h2", "", tag("span", "", agent), tag("span", "", moment(at)), cost && tag("span", "", cost));
  if (changes) head.append(Object.assign(tag("a", "", "Changes"), { href: changes }));
  head.append(badge);
  const made = tag("li", id === RUN ? "chosen" : "", head);
  for (const each of said) made.append(tag("div", "said", tag("p", "who", each.who, tag("time", "", moment(each.at))), says(each.text)));
  if (decided.length) made.append(tag("ul", "decided", ...decided.map((line) => tag("li", "", line))));
  if (answer.length) made.append(tag("div", "answer", tag("p", "who", agent), says(answer)));
  if (is_cut) made.append(tag("p", "note", "The rest of this answer is not shown here: open the thread in the chat."));
  return made;
}

const moment = (iso) => (when(iso) ? when(iso).toLocaleString() : "");

entered(async (key) => {
  const again = () => show(key, acts).catch((error) => { $("wrong").textContent = error.message; });
  const acts = new Acts(key, () => setTimeout(again, SETTLED_MS));
  await show(key, acts);
  $("again").addEventListener("click", again);
  document.querySelector("#needs:not([hidden]), li.chosen")?.scrollIntoView({ block: "nearest" });
});
