// The page's composition: who calls whom, and nothing else.

import { Acts } from "./acts.js";
import { tick, when } from "./dom.js";
import { keyFor, takeTicket, whenShared } from "./key.js";
import { Log } from "./log.js";
import { Repos } from "./repos.js";
import { Search } from "./search.js";
import { showConnection, showErrors, showFacts, showJobs, showNeeds, showRecent, showTroubles, showVerdict, showWork } from "./sections.js";
import { Refused, Stream } from "./stream.js";

const AGES_MS = 5000;
const TRY_MS = 2000;
const NO_KEY = "This page has no key: run `codebutler dashboard` and open the link it prints.";
const $ = (id) => document.getElementById(id);

/** Show only the reason why there is nothing to show. */
function shut(text) {
  document.body.className = "closed";
  $("page").hidden = true;
  $("shut").hidden = false;
  $("closed-text").textContent = text;
  $("connection").textContent = "";
}

function open(log) {
  if (!$("page").hidden) return;
  document.body.classList.remove("closed");
  $("shut").hidden = true;
  $("page").hidden = false;
  log.toEnd();
}

class Page {
  constructor(key) {
    this.skew = 0;
    this.lostAt = new Date();
    this.told = {};
    this.acts = new Acts(key);
    this.repos = new Repos(this.acts);
    this.search = new Search(key);
    this.log = new Log((wish) => this.stream.open(wish));
    this.stream = new Stream(key, { onEvent: (name, told) => this.take(name, told), onState: (state, why) => this.turn(state, why) });
    setInterval(() => tick(this.skew), AGES_MS);
    this.stream.open(this.log.wish);
  }

  take(name, told) {
    if (name === "log") return this.log.apply(told);
    open(this.log);
    this.skew = (when(told.now) || new Date()) - new Date();
    Object.assign(this.told, told);
    if (told.verdict) showVerdict(told.verdict);
    if (told.system || told.chats) showFacts(this.told.system, this.told.chats);
    if (told.troubles) showTroubles(told.troubles);
    if (told.needs) showNeeds(told.needs, this.acts);
    if (told.work) showWork(told.work, this.acts);
    if (told.recent) showRecent(told.recent);
    if (told.jobs) showJobs(told.jobs, this.acts);
    if (told.errors) showErrors(told.errors);
    if (told.names) this.log.offer(told.names);
    this.repos.apply(told);
    tick(this.skew);
  }

  turn(state, why) {
    if (state === "refused") return shut(why);
    if (state === "up") this.lostAt = null;
    else this.lostAt ??= new Date();
    showConnection(state, this.lostAt, why);
  }
}

/** The key; retries until the supervisor answers. */
async function enter(ticket) {
  for (;;) {
    try {
      return await keyFor(ticket);
    } catch (error) {
      if (error instanceof Refused) throw error;
      shut("The supervisor does not answer. Trying again…");
      await new Promise((resolve) => setTimeout(resolve, TRY_MS));
    }
  }
}

async function main() {
  addEventListener("hashchange", () => location.reload());
  try {
    const key = await enter(takeTicket());
    if (key) return new Page(key);
    shut(NO_KEY);
    whenShared(() => location.reload());
  } catch (error) {
    shut(error.message);
  }
}

main();
