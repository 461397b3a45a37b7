// Opens a page other than the dashboard's first one: with this tab's key, another tab's, or a pasted link.

import { keyFor, takeTicket, whenShared } from "./key.js";
import { Refused } from "./stream.js";

const $ = (id) => document.getElementById(id);

function shut(text, asks = false) {
  $("closed-text").textContent = text;
  $("enter").hidden = !asks;
}

/** `show(key)` builds the page; an error that it throws is shown. */
export function entered(show) {
  let isIn = false;
  const open = async (ticket) => {
    $("enter").hidden = true;
    try {
      const key = await keyFor(ticket);
      if (!key) return shut("You are not signed in to the dashboard in this browser.", true);
      shut("Loading…");
      await show(key);
      isIn = true;
    } catch (error) {
      shut(error instanceof Refused || error.told ? error.message : "The supervisor does not answer: reload the page once it is running.", error instanceof Refused);
    }
  };
  $("enter").addEventListener("submit", (event) => {
    event.preventDefault();
    open($("link").value.trim().split("#").pop());
  });
  whenShared(() => isIn || open(""));
  open(takeTicket());
}
