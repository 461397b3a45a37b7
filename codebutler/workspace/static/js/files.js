// Files in messages: pictures and voice are shown, text can be looked at, everything can be saved.

import { dialog, button, icon, tag } from "./dom.js";
import { size } from "./text.js";
import { notice, words } from "./words.js";

// Only pixel formats; SVG could contain scripts and links.
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const READABLE = /^(text\/|application\/(json|xml|x-sh|javascript|toml|yaml|sql))/;
const READABLE_NAME = /\.(md|txt|log|py|js|ts|rs|go|c|h|cpp|java|rb|sh|toml|ya?ml|json|csv|diff|patch|sql|css|html)$/i;
const MOST_READ_BYTES = 300_000;

export class Files {
  constructor(api) {
    this.api = api;
    this.urls = new Map();
  }

  /** A file's node in a message. */
  node(file) {
    if (file.mode === "tombstone") return tag("p", "note", "This file was deleted.");
    if (PICTURES.has(file.mimetype)) return this.#picture(file);
    if (/^(audio|video)\//.test(file.mimetype) && file.name.startsWith("audio_message")) return this.#clip(file);
    return this.#row(file);
  }

  #row(file) {
    const link = tag("a", "file", icon("file"), tag("span", "", file.title || file.name), tag("small", "", size(file.size || 0)));
    link.href = "#";
    link.title = `Save ${file.name}`;
    link.addEventListener("click", (event) => { event.preventDefault(); this.#save(file); });
    const row = tag("div", "file-row", link);
    const readable = READABLE.test(file.mimetype) || READABLE_NAME.test(file.name);
    if (readable && file.size < MOST_READ_BYTES) row.append(button("Preview", "quiet", () => this.#read(file), `Preview ${file.name}`));
    return row;
  }

  /** A picture is shown instead of its name; if the browser cannot show it, the name stays. */
  #picture(file) {
    const row = this.#row(file);
    const link = row.querySelector(".file");
    this.#url(file).then((url) => {
      const picture = Object.assign(document.createElement("img"), { src: url, alt: file.title || file.name });
      picture.addEventListener("load", () => {
        const shown = tag("a", "file picture", picture);
        shown.href = "#";
        shown.addEventListener("click", (event) => { event.preventDefault(); this.#enlarge(file, url); });
        link.replaceWith(shown);
        shown.dispatchEvent(new Event("grown", { bubbles: true }));
      });
    }, () => undefined);
    return row;
  }

  #clip(file) {
    const row = this.#row(file);
    row.classList.add("clip");
    this.#url(file).then((url) => {
      const player = Object.assign(document.createElement("audio"), { src: url, controls: true, preload: "metadata" });
      player.setAttribute("aria-label", `Voice message ${file.name}`);
      row.prepend(player);
      row.dispatchEvent(new Event("grown", { bubbles: true }));
    }, () => undefined);
    return row;
  }

  #enlarge(file, url) {
    const picture = Object.assign(document.createElement("img"), { src: url, alt: file.title || file.name });
    dialog(file.title || file.name, "viewer", tag("div", "viewer-body", picture), this.#footer(file));
  }

  async #read(file) {
    try {
      const text = await (await this.api.download(file)).text();
      const body = tag("pre", "viewer-body", text);
      body.tabIndex = 0;
      dialog(file.title || file.name, "viewer", body, this.#footer(file));
    } catch (error) {
      notice(words(error));
    }
  }

  #footer(file) {
    return tag("footer", "", tag("span", "note", `${size(file.size || 0)} · ${file.mimetype}`), button("Save", "primary", () => this.#save(file)));
  }

  async #save(file) {
    try {
      const url = URL.createObjectURL(await this.api.download(file));
      Object.assign(document.createElement("a"), { href: url, download: file.name }).click();
      URL.revokeObjectURL(url);
    } catch (error) {
      notice(words(error));
    }
  }

  #url(file) {
    if (!this.urls.has(file.id)) this.urls.set(file.id, this.api.download(file).then((blob) => URL.createObjectURL(blob)));
    return this.urls.get(file.id);
  }
}
