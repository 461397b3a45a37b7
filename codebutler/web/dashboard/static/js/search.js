// Search over conversations: the matches, each with its transcript.

import { call } from "./call.js";
import { says } from "./decisions.js";
import { ago, link, tag } from "./dom.js";

const $ = (id) => document.getElementById(id);

export class Search {
  constructor(key) {
    this.key = key;
    this.asked = 0;
    $("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find($("search-words").value.trim(), $("search-repo").value);
    });
  }

  async find(words, repo) {
    const asked = (this.asked += 1);
    const place = $("search").querySelector(".list");
    $("search-told").textContent = "Searching…";
    place.replaceChildren();
    try {
      const { hits, missed } = await call(this.key, `/dashboard/found?${new URLSearchParams({ words, repo })}`);
      if (asked !== this.asked) return;
      place.replaceChildren(...hits.map(hit));
      const count = hits.length === 1 ? "1 conversation" : `${hits.length || "No"} conversations`;
      $("search-told").textContent = [`${count} with “${words}”.`, ...missed.map((why) => `Not searched: ${why}.`)].join(" ");
    } catch (error) {
      if (asked === this.asked) $("search-told").textContent = `Not searched: ${error.message}`;
    }
  }
}

function hit({ repo, title, text, agent, at, page, url }) {
  const name = Object.assign(tag("a", "name", title), { href: page });
  const under = tag("p", "under", tag("span", "", repo), tag("span", "", agent), tag("span", "", ago(at)));
  if (url) under.append(link("Thread", url));
  return tag("li", "hit", tag("p", "over", name), says(text), under);
}
