// The fault panel: injects the faults that can happen between an app and Slack.

import { button, dialog, field, tag } from "./dom.js";
import { notice, words } from "./words.js";

const REFRESH_MS = 1500;
const ENDS = [
  ["drop", "Cut", "The connection breaks without a close frame."],
  ["deafen", "Go deaf", "The connection stays open, but nothing arrives over it."],
  ["refresh_requested", "Ask to reconnect", "As Slack does every few hours."],
  ["warning", "Warn", "Slack's warning ten seconds before that."],
  ["too_many_websockets", "Too many", "As if ten other programs were connected."],
  ["link_disabled", "Switch off", "Socket Mode is turned off for good: the app cannot reconnect."],
];
const KINDS = [
  ["rate_limit", "Rate limit (429)"],
  ["delay", "Late answer"],
  ["error", "Refused with an error"],
  ["status", "Server error (500)"],
  ["reset", "Cut before it took effect"],
  ["lost", "Done, answer lost"],
  ["hang", "Done, never answered"],
];
const TIMED = ["rate_limit", "delay"];
const METHODS = ["*", "chat.postMessage", "chat.update", "chat.delete", "reactions.add", "conversations.history", "conversations.replies", "apps.connections.open", "views.open", "files.upload", "files.download"];

/** Open the panel; it shows the current state while it is open. */
export function openPanel(api) {
  const figures = tag("dl", "figures");
  const pending = tag("ul", "pending");
  const enforced = Object.assign(tag("input", ""), { type: "checkbox" });
  let acts = 0;
  // An answer to a request from before the person's action is outdated.
  const look = async (asked = acts) => {
    const state = await api.page("faults", undefined, "GET");
    if (asked === acts) draw(state, figures, pending, enforced);
  };
  const told = (error) => notice(words(error));
  const act = (what, body, verb) => {
    acts += 1;
    return api.page(what, body, verb).then(() => look()).catch(told);
  };
  enforced.addEventListener("change", () => act("limits", { enforced: enforced.checked }));
  const box = dialog("Fault injection", "panel faults", tag("div", "panel-body",
    tag("p", "note", "Inject faults between the app and Slack, and see how the app copes. Your own messages are not affected."),
    tag("h3", "", "The app's connection, now"), connection(act),
    tag("h3", "", "The app's next calls"), orders(act), pending,
    tag("label", "check", enforced, tag("span", "", "Refuse calls above Slack's rate limits")),
    tag("h3", "", "So far"), figures));
  const timer = setInterval(() => look().catch(told), REFRESH_MS);
  box.addEventListener("close", () => clearInterval(timer));
  look().catch(told);
  return box;
}

function connection(act) {
  return tag("ul", "ends", ...ENDS.map(([reason, name, what]) => {
    const node = button(name, "", () => act("disconnect", { reason }));
    const told = Object.assign(tag("small", "", what), { id: `end-${reason}` });
    node.setAttribute("aria-describedby", told.id);
    return tag("li", "", node, told);
  }));
}

function orders(act) {
  const method = select(METHODS.map((name) => [name, name === "*" ? "every method" : name]));
  const kind = select(KINDS);
  const times = number(1, 1000);
  const seconds = number(2, 600);
  const wait = field("Seconds", seconds, "To wait, or late");
  const form = tag("form", "orders", field("Method", method), field("Fault", kind), field("How often", times), wait, tag("div", "row"));
  kind.addEventListener("change", () => { wait.hidden = !TIMED.includes(kind.value); });
  form.lastChild.append(Object.assign(button("Inject", "primary"), { type: "submit" }), button("Clear all", "", () => act("faults", undefined, "DELETE")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = Number(seconds.value);
    act("faults", { method: method.value, kind: kind.value, times: Number(times.value), retry_after_s: Math.max(1, Math.round(given)), delay_s: given, only_app: true });
  });
  return form;
}

function select(choices) {
  const node = tag("select", "");
  node.append(...choices.map(([value, text]) => new Option(text, value)));
  return node;
}

const number = (value, max) => Object.assign(tag("input", ""), { type: "number", min: 1, max, value });

function draw({ faults, connections, pending: waiting, counts, limits }, figures, pending, enforced) {
  enforced.checked = limits.enforced;
  pending.replaceChildren(...faults.map((fault) => tag("li", "", `Injected: ${fault.method === "*" ? "every method" : fault.method}: ${KINDS.find(([kind]) => kind === fault.kind)[1]}, ${fault.times}×`)));
  const over = Object.entries(limits.violations).map(([method, count]) => `${method} ${count}×`).join(", ");
  const told = {
    "Connections": connections, "Sent to the app": counts.sent, "Acknowledged": counts.acked,
    "Sent again": counts.retried, "Given up": counts.lost, "Waiting": waiting, "Calls over the limits": over || "none",
  };
  figures.replaceChildren(...Object.entries(told).flatMap(([name, value]) => [tag("dt", "", name), tag("dd", "", String(value))]));
}
