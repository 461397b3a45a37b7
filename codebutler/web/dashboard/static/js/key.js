// The dashboard's key. An address carries a one-time ticket; the key itself is only in our tabs: a new tab gets it from
// an open one, which first makes the server prove that it has the key, too.

import { Refused } from "./stream.js";

const NAME = "codebutler.key";
const NONCE_BYTES = 16;
const PATIENCE_MS = 1500; // another tab has to ask the supervisor first
const TABS = new BroadcastChannel(NAME);

/** The ticket in the address, from which it is removed; "" if there is none. */
export function takeTicket() {
  const ticket = location.hash.slice(1);
  if (ticket) history.replaceState(null, "", location.pathname);
  return ticket;
}

/** The key for a ticket, or the one this tab or another has; null without any. Throws Refused, and TypeError without a network. */
export async function keyFor(ticket) {
  let kept = JSON.parse(sessionStorage.getItem(NAME));
  if (!ticket) {
    if (!kept && (kept = await handedOver())) sessionStorage.setItem(NAME, JSON.stringify(kept));
    return kept && shared(new Key(kept));
  }
  const answer = await fetch("/dashboard/key", { method: "POST", body: JSON.stringify({ ticket }) });
  const told = await answer.json();
  if (!answer.ok && !kept) throw new Refused(told.error);
  if (answer.ok) sessionStorage.setItem(NAME, JSON.stringify(told));
  return shared(new Key(answer.ok ? told : kept));
}

/** `onShared()` is called when another tab has got a key. */
export function whenShared(onShared) {
  TABS.addEventListener("message", ({ data }) => { if (data.has) onShared(); });
}

/** From now on, give the key to our tabs that ask for it. */
function shared(key) {
  TABS.addEventListener("message", async ({ data }) => {
    if (!data.asks || !(await key.isKnownHere().catch(() => false))) return;
    TABS.postMessage({ to: data.asks, key: { key: key.text, port: key.port } });
  });
  TABS.postMessage({ has: true });
  return key;
}

/** Another tab's key; null if none has one. */
function handedOver() {
  const asks = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  return new Promise((resolve) => {
    const hear = ({ data }) => { if (data.to === asks) done(data.key); };
    const done = (key) => {
      TABS.removeEventListener("message", hear);
      resolve(key);
    };
    TABS.addEventListener("message", hear);
    TABS.postMessage({ asks });
    setTimeout(() => done(null), PATIENCE_MS);
  });
}

/** A key, and the port of the supervisor that gave it. */
export class Key {
  constructor({ key, port }) {
    this.text = key;
    this.port = port;
  }

  /** Does the server here have the key, too? If not, another program has taken the port, and must not get the key. */
  async isKnownHere(signal) {
    if (!globalThis.crypto?.subtle) return true; // without encryption, anybody in between could lie anyway
    const nonce = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
    const answer = await fetch(`/dashboard/proof?nonce=${nonce}`, { signal, cache: "no-store" });
    if (!answer.ok) return false;
    const { proof } = await answer.json();
    const secret = await crypto.subtle.importKey("raw", bytes(this.text), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const right = await crypto.subtle.sign("HMAC", secret, bytes(`codebutler dashboard\n${this.port}\n${nonce}`));
    return proof === hex(new Uint8Array(right));
  }
}

const bytes = (text) => new TextEncoder().encode(text);
const hex = (octets) => Array.from(octets, (octet) => octet.toString(16).padStart(2, "0")).join("");
