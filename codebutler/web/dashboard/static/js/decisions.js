// A run's requests and questions, and the buttons to decide them.

import { tag } from "./dom.js";

const ASK = { label: "Why not, or what instead?", send: "Deny" };
const ANSWER = { label: "Or answer in your own words:", send: "Answer" };

/** The requests and questions of a run, each with its buttons. */
export function asked(turn, acts) {
  return turn.asked.map((each, number) => {
    const place = tag("div", "asked");
    if (!each.text.length) return tag("div", "asked", tooLong(turn));
    place.append(says(each.text));
    const boxes = each.boxes.map(({ label, value }) => {
      const box = Object.assign(document.createElement("input"), { type: "checkbox", name: value });
      return tag("label", "", box, label);
    });
    if (boxes.length) place.append(tag("div", "boxes", ...boxes));
    const about = `${turn.repo}, ${turn.text}${turn.asked.length > 1 ? `, ${number + 1} of ${turn.asked.length}` : ""}`;
    const picked = () => [...place.querySelectorAll(".boxes input:checked")].map(({ name }) => name);
    const reason = each.choices.find((choice) => choice.asks_why);
    const form = reason && words(`why ${each.id}`, ASK, about, acts, (text) => press(turn, reason, { words: text }));
    const buttons = each.choices.map((choice) => (choice === reason
      ? opener(choice.label, about, form)
      : acts.button(choice.label, choice.style, about, () => press(turn, choice, { picked: picked() }))));
    if (buttons.length) place.append(tag("p", "buttons", ...buttons));
    if (form) {
      form.hidden = true;
      place.append(form);
    }
    if (each.in_words) {
      const label = buttons.length ? ANSWER : { ...ANSWER, label: "Your answer:" };
      place.append(words(`answer ${each.id}`, label, about, acts, (text) => text && { do: "answer", repo: turn.repo, run: turn.id, words: text }));
    }
    return place;
  });
}

function tooLong({ page, repo, text }) {
  if (!page) return tag("p", "note", "Too long for this page: read it and decide in the chat.");
  const way = Object.assign(tag("a", "", "Read it and decide"), { href: page, ariaLabel: `Read it and decide: ${repo}, ${text}` });
  return tag("p", "note", "Too long for this list. ", way);
}

/** The buttons about the run itself. */
export function own(turn, acts) {
  const about = `${turn.repo}, ${turn.text}`;
  return turn.choices.map((choice) => acts.button(choice.label, choice.style, about, () => press(turn, choice)));
}

/** Our own text in pieces, which never become markup. */
export function says(pieces) {
  const tags = { code: "code", block: "pre", strong: "strong" };
  const nodes = pieces.map(([kind, text], at) => {
    if (kind === "text") return document.createTextNode(pieces[at - 1]?.[0] === "block" ? text.replace(/^\n/, "") : text);
    const node = tag(tags[kind], "", text);
    if (kind === "block") node.tabIndex = 0; // it may have to be scrolled
    return node;
  });
  return tag("div", "says", ...nodes);
}

const press = (turn, { card, action, value }, more = {}) => ({ do: "decide", repo: turn.repo, run: turn.id, card, action, value, ...more });

function opener(label, about, form) {
  const made = Object.assign(tag("button", "", label), { type: "button", ariaLabel: `${label}: ${about}`, ariaExpanded: "false" });
  made.addEventListener("click", () => {
    form.hidden = !form.hidden;
    made.ariaExpanded = String(!form.hidden);
    if (!form.hidden) form.querySelector("input").focus();
  });
  return made;
}

/** A text field; `act` sends its text. */
function words(name, { label, send }, about, acts, act) {
  const field = Object.assign(document.createElement("input"), { type: "text", name, maxLength: 4000, autocomplete: "off" });
  const button = Object.assign(tag("button", "", send), { type: "submit", ariaLabel: `${send}: ${about}` });
  field.id = name;
  const form = tag("form", "words", Object.assign(tag("label", "", label), { htmlFor: name }), field, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    acts.do(button, act(field.value.trim()));
  });
  return form;
}
