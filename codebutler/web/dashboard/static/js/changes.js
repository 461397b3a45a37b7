// The page of a run's changes: its files, its lines, and a person's comments.

import { call } from "./call.js";
import { link, tag, when } from "./dom.js";
import { entered } from "./enter.js";
import { FileSection, counts } from "./file.js";

const $ = (id) => document.getElementById(id);
const [REPO, RUN] = location.pathname.split("/").slice(2).map(decodeURIComponent);
const KEPT = `codebutler.comments ${REPO} ${RUN}`;
const NARROW = matchMedia("(max-width: 900px)");
const MANY = 12; // from this number on, the list of files is closed on a phone

class Page {
  constructor(key, told) {
    this.key = key;
    this.told = told;
    this.notes = JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
    this.view = "unified";
    this.files = told.files.map((file, number) => new FileSection(file, number, this.notes, () => this.changed()));
    this.head();
    this.list();
    $("sections").append(...this.files.map(({ node }) => node));
    for (const button of $("views").children) button.addEventListener("click", () => this.show((this.wanted = button.dataset.view)));
    NARROW.addEventListener("change", () => this.show(this.wanted));
    $("send").addEventListener("click", () => this.send());
    this.wanted = "unified";
    this.show(this.wanted);
    this.changed();
    document.body.classList.remove("closed");
    $("shut").hidden = true;
    $("page").hidden = $("tools").hidden = $("bar").hidden = false;
  }

  head() {
    const { task, repo, agent, at, url, files, more, commits, is_cut } = this.told;
    const sum = (name) => files.reduce((total, file) => total + (file[name] ?? 0), 0);
    $("task").textContent = task || "Changes";
    document.title = `${task || "Changes"} · ${repo}`;
    $("about").replaceChildren(
      [repo, agent, when(at) ? when(at).toLocaleString() : "", count(files.length + more, "file")].filter(Boolean).join(" · "),
      " · ", tag("span", "plus", `+${sum("added")}`), " ", tag("span", "minus", `−${sum("removed")}`),
    );
    const way = link("", url);
    if (way.href) Object.assign($("thread"), { href: way.href, hidden: false });
    $("commits").hidden = !commits.length;
    $("commits").append(...commits.map((line) => tag("li", "", line)));
    const left = [more && `${count(more, "more file")} changed.`, is_cut && "Too many lines: the last ones are not shown."].filter(Boolean);
    $("more").hidden = !left.length;
    $("more").textContent = left.join(" ");
  }

  list() {
    const { files } = this.told;
    $("files-title").textContent = count(files.length, "file");
    $("files").querySelector("details").open = !(NARROW.matches && files.length > MANY);
    $("files").querySelector("ul").append(...files.map((file, number) => {
      const cut = file.path.lastIndexOf("/") + 1;
      const path = tag("span", "path", tag("span", "dir", file.path.slice(0, cut)), file.path.slice(cut));
      const entry = Object.assign(tag("a", "", path, tag("span", "", ...counts(file).flatMap((one) => [one, " "]))), { href: `#file-${number}` });
      entry.addEventListener("click", (event) => {
        event.preventDefault(); // the part after the # is for tickets
        this.files[number].node.scrollIntoView();
        this.files[number].node.focus({ preventScroll: true });
      });
      return tag("li", "", entry);
    }));
  }

  show(wanted) {
    this.view = NARROW.matches ? "unified" : wanted;
    for (const button of $("views").children) button.setAttribute("aria-pressed", String(button.dataset.view === this.view));
    for (const file of this.files) file.show(this.view);
  }

  changed() {
    sessionStorage.setItem(KEPT, JSON.stringify(this.notes));
    const number = this.notes.length;
    $("send").disabled = !number;
    $("send").textContent = number ? `Send ${count(number, "comment")} to the thread` : "Send to the thread";
    if (number) $("sent").textContent = $("wrong").textContent = "";
  }

  async send() {
    $("send").disabled = true;
    $("send").textContent = "Sending…";
    $("wrong").textContent = "";
    const sent = [...this.notes];
    const comments = sent.map(({ path, first, last, side, quote, text }) => ({ path, first, last, side, quote, text }));
    try {
      await call(this.key, "/dashboard/comments", { repo: REPO, thread: this.told.thread, comments });
      this.notes.splice(0);
      for (const file of this.files) file.showNotes();
      this.changed();
      $("sent").textContent = `Sent ${count(sent.length, "comment")}. The agent answers in the thread.`;
    } catch (error) {
      this.changed();
      $("wrong").textContent = `Not sent: ${error.message}`;
    }
  }
}

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

entered(async (key) => {
  const query = new URLSearchParams({ repo: REPO, run: RUN });
  new Page(key, await call(key, `/dashboard/changes?${query}`));
});
