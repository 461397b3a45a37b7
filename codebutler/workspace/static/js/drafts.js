// Drafts by place, which outlive the page. If the browser stores nothing (a private window, full storage), a draft
// lives as long as the page.

export class Drafts {
  #unkept = new Map();

  /** `owner` is the author: another person in the same browser has other drafts. */
  constructor(owner) {
    this.prefix = `draft ${owner} `;
  }

  get(place) {
    return this.#unkept.get(place) ?? localStorage.getItem(this.prefix + place) ?? "";
  }

  set(place, text) {
    this.#unkept.delete(place);
    try {
      if (text) localStorage.setItem(this.prefix + place, text);
      else localStorage.removeItem(this.prefix + place);
    } catch {
      this.#unkept.set(place, text);
    }
  }

  /** Whether another tab's change under `key` was to this place. */
  isAt(key, place) {
    return key === this.prefix + place;
  }

  /** Put a text before the existing draft. */
  giveBack(place, text) {
    this.set(place, [text, this.get(place)].filter(Boolean).join("\n"));
  }
}

/** Where drafts of a channel or, with the ts of its first message, of a thread are kept. */
export const placeOf = (channel, thread) => (thread ? `${channel}:${thread}` : channel);
