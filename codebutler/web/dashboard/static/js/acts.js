// What a person does on a page: one request for each press, and a line about its outcome.

import { call } from "./call.js";
import { tag } from "./dom.js";

const SHOWN_MS = 8000;
const NEAR_PX = 12;
const PATIENCE_MS = 15_000; // after this time the button works again
const $ = (id) => document.getElementById(id);

export class Acts {
  /** `onDone()` is called when something was done. */
  constructor(key, onDone = () => {}) {
    this.key = key;
    this.onDone = onDone;
  }

  /** A button; `about` completes its accessible name. `act()` returns what to do; "" does nothing. */
  button(label, style, about, act) {
    const made = Object.assign(tag("button", style, label), { type: "button", ariaLabel: `${label}: ${about}` });
    made.addEventListener("click", (event) => {
      if (this.hasMoved(made, event)) $("wrong").textContent = "The list has moved: press again to confirm.";
      else this.do(made, act());
    });
    return made;
  }

  /** Whether another entry has moved under the pointer since the last click: this click may not be meant for it. */
  hasMoved(button, { detail, clientX: x, clientY: y }) {
    const last = this.last;
    const { key } = button.closest("[data-key]")?.dataset ?? {};
    if (detail) this.last = { key, x, y }; // 0: by keyboard, which has no position
    return Boolean(detail && last && last.key !== key && Math.hypot(last.x - x, last.y - y) < NEAR_PX);
  }

  /** Do it once: its section is busy until the stream shows the change. */
  async do(button, act) {
    const place = button.closest("[data-key]") ?? button.parentNode;
    if (!act || place.classList.contains("busy")) return;
    place.classList.add("busy");
    $("wrong").textContent = $("told").textContent = "";
    try {
      const { told } = await call(this.key, "/dashboard/act", act);
      this.say(told);
      this.onDone();
      setTimeout(() => place.classList.remove("busy"), PATIENCE_MS);
    } catch (error) {
      place.classList.remove("busy");
      $("wrong").textContent = error instanceof TypeError ? "Not sent: the supervisor does not answer." : error.message;
    }
  }

  say(text) {
    $("told").textContent = text;
    clearTimeout(this.clearing);
    this.clearing = setTimeout(() => { $("told").textContent = ""; }, SHOWN_MS);
  }
}
