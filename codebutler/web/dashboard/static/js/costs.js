// The page of costs. The supervisor renders it; this fetches it with the key, again for each choice.

import { entered } from "./enter.js";
import { Refused, SOMEBODY_ELSE } from "./stream.js";

const $ = (id) => document.getElementById(id);

/** The supervisor's HTML as a document: the only way to create nodes from markup that the page's policy allows. */
async function drawn(key, path) {
  if (!(await key.isKnownHere())) throw new Refused(SOMEBODY_ELSE);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    request.setRequestHeader("authorization", `Bearer ${key.text}`);
    request.onerror = () => reject(new TypeError("no answer"));
    request.onload = () => {
      if (request.status === 401) reject(new Refused("This page has no key: run `codebutler dashboard` and open the link it prints."));
      else if (request.status !== 200 || !request.response) reject(new TypeError(`status ${request.status}`));
      else resolve(request.response);
    };
    request.send();
  });
}

class Page {
  constructor(key) {
    this.key = key;
    this.asked = 0;
    $("filters").addEventListener("change", () => this.choose());
    $("filters").addEventListener("submit", (event) => event.preventDefault());
  }

  async show(query) {
    const number = (this.asked += 1);
    document.body.classList.add("busy");
    try {
      const told = await drawn(this.key, `/dashboard/costs?${query}`);
      if (number === this.asked) this.take(told);
    } finally {
      if (number === this.asked) document.body.classList.remove("busy");
    }
  }

  take(told) {
    const focused = document.activeElement?.name;
    $("filters").replaceChildren(...told.getElementById("filters").childNodes);
    $("costs").replaceChildren(...told.getElementById("costs").childNodes);
    if (focused) $("filters").elements[focused]?.focus();
    const sums = [...document.querySelectorAll(".sums dd")].map((each) => each.textContent);
    $("told").textContent = sums.length ? `${sums[0]}, ${sums[1]} run${sums[1] === "1" ? "" : "s"}` : "No runs";
    document.body.classList.remove("closed");
    $("shut").hidden = true;
    $("page").hidden = false;
  }

  async choose() {
    const chosen = [...new FormData($("filters"))].filter(([, value]) => value);
    const query = new URLSearchParams(chosen).toString();
    history.replaceState(null, "", query ? `?${query}` : location.pathname);
    try {
      await this.show(query);
    } catch (error) {
      $("told").textContent = error instanceof Refused ? error.message : "The supervisor does not answer: try again when it is running.";
    }
  }
}

entered((key) => new Page(key).show(location.search.slice(1)));
