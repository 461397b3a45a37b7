// The page's composition: who calls whom, and nothing else.

import { Api } from "./api.js";
import { aboutChannel, createChannel } from "./channel.js";
import { button, icon } from "./dom.js";
import { Model } from "./model.js";
import { Page } from "./page.js";
import { openPanel } from "./panel.js";
import { choosePerson } from "./people.js";
import { listen, showShortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { follow } from "./stream.js";
import { Switcher } from "./switcher.js";
import { applyTheme, nextTheme } from "./theme.js";
import { notice, words } from "./words.js";

const $ = (id) => document.getElementById(id);

const ANOTHER_KEY = "This address is from an earlier start. Open the one that CodeButler printed last: it has a new key.";
const CONNECTION = { up: "connected", lost: "connection lost, trying again…", refused: ANOTHER_KEY };

function compose(api, model) {
  const sidebar = new Sidebar(model, () => createChannel(api, model));
  const page = new Page(api, model);
  const switcher = new Switcher(api, model, (place) => page.go(place).catch((error) => notice(words(error))));
  $("team").textContent = model.team.name;
  $("jump").addEventListener("click", () => switcher.open());
  $("about").addEventListener("click", () => aboutChannel(api, model));
  $("me").addEventListener("click", () => choosePerson(api, model));
  $("tools").append(
    button(icon("bolt"), "icon", () => openPanel(api), "Fault injection"),
    button(icon("keyboard"), "icon", showShortcuts, "Keys"),
    button(icon("theme"), "icon", nextTheme, "Toggle theme"),
  );
  listen({
    jump: () => switcher.open(),
    write: () => page.write(),
    step: (by) => step(model, by),
    leave: () => (sidebar.isOpen ? sidebar.show(false) : model.thread && model.openThread(null)),
  });
  page.start();
  follow(api.streamUrl(), {
    onEvent: (event) => model.apply(event),
    onReset: () => page.reload(),
    onState: (state) => {
      $("connection").textContent = CONNECTION[state];
      if (state === "up") page.connected();
      $("connection").classList.toggle("lost", state !== "up");
    },
  });
}

/** Go to the next channel of the list, up or down. */
function step(model, by) {
  const known = [...model.channels.values()].filter((channel) => !channel.is_im && !channel.is_archived).map(({ id }) => id);
  const at = known.indexOf(model.channel);
  if (known.length) model.openChannel(known[(at + by + known.length) % known.length]);
}

/** The token comes in the address once, and is then kept in this tab only. An invalid token does not replace a valid
 * one, since anybody can make a link. */
async function enter() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  const kept = sessionStorage.getItem("token");
  if (given && given !== kept) {
    try {
      const entered = await boot(given);
      sessionStorage.setItem("token", given);
      sessionStorage.removeItem("owner");
      return entered;
    } catch (error) {
      if (!kept) throw error;
    }
  }
  return kept && boot(kept);
}

async function boot(token) {
  const api = new Api(token);
  return [api, new Model(await api.boot())];
}

function explain(text) {
  document.body.className = "closed";
  $("channel-name").textContent = "CodeButler";
  $("messages").replaceChildren(Object.assign(document.createElement("li"), { className: "problem", textContent: text }));
}

async function main() {
  applyTheme();
  for (const place of document.querySelectorAll("[data-icon]")) place.append(icon(place.dataset.icon));
  try {
    const entered = await enter();
    if (!entered) return explain("Open the address that CodeButler printed: it contains the key to this workspace.");
    return compose(...entered);
  } catch (error) {
    if (error.message === "HTTP 401") return explain(ANOTHER_KEY);
    return explain(`The workspace does not answer (${error.message}). Is CodeButler still running? Use the address it printed last.`);
  }
}

main();
