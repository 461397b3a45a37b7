// Server-Sent Events with a key in a header, which EventSource cannot send. It reconnects automatically.

const SILENCE_MS = 45_000; // the supervisor sends something every 15 s
export const SOMEBODY_ELSE = "Another supervisor answers here, or one with a new key: run `codebutler dashboard` for a new link.";
const LONGEST_WAIT_MS = 10_000;

/** Thrown if a retry is pointless: `message` is the supervisor's own line. */
export class Refused extends Error {}

export class Stream {
  /** `onState("up" | "lost" | "refused", why)` */
  constructor(key, { onEvent, onState }) {
    this.key = key;
    this.onEvent = onEvent;
    this.onState = onState;
    this.life = 0;
    this.wake = () => {};
    for (const name of ["online", "visibilitychange"]) addEventListener(name, () => this.wake());
  }

  /** From now on, follow with these parameters instead of the earlier ones. */
  async open(wish) {
    const life = (this.life += 1);
    this.abort?.abort();
    for (let failures = 0; life === this.life; failures += 1) {
      try {
        await this.follow(wish, life, () => { failures = 0; });
        if (life === this.life) this.onState("lost", "");
      } catch (error) {
        if (life !== this.life) return;
        if (error instanceof Refused) return this.onState("refused", error.message);
        this.onState("lost", error.told ?? "");
      }
      if (life === this.life) await this.rest(Math.min(LONGEST_WAIT_MS, 500 * 2 ** failures));
    }
  }

  rest(milliseconds) {
    return new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, milliseconds * (0.75 + Math.random() / 2));
    });
  }

  async follow(wish, life, onUp) {
    const abort = (this.abort = new AbortController());
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    heard();
    try {
      if (!(await this.key.isKnownHere(abort.signal))) throw told(SOMEBODY_ELSE);
      const headers = { authorization: `Bearer ${this.key.text}` };
      const answer = await fetch(`/dashboard/stream?${new URLSearchParams(wish)}`, { headers, signal: abort.signal, cache: "no-store" });
      if (!answer.ok) throw await refusal(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || life !== this.life) return;
        heard();
        if (!rest) onUp();
        const frames = (rest + value).split("\n\n");
        rest = frames.pop();
        for (const frame of frames) this.take(frame);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  take(frame) {
    const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
    if (!fields.data) return;
    this.onState("up", "");
    this.onEvent(fields.event, JSON.parse(fields.data));
  }
}

export async function refusal(answer) {
  const words = (await answer.json().catch(() => ({}))).error ?? `HTTP ${answer.status}`;
  if (answer.status === 401 || answer.status === 403) return new Refused(words);
  return told(words);
}

/** A failure that can be retried, with its reason. */
const told = (words) => Object.assign(new Error(words), { told: words });
