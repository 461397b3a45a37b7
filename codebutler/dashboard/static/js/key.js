// The key to what is shown. An address carries a ticket that is good once; the key itself lives in this tab only.

import { Refused } from "./stream.js";

const NAME = "codebutler.key";

/** The ticket in the address, which is taken out of it; "" if there is none. */
export function takeTicket() {
  const ticket = location.hash.slice(1);
  if (ticket) history.replaceState(null, "", location.pathname);
  return ticket;
}

/** The key for a ticket, or the one this tab has; "" without either. Throws Refused, and TypeError without a network. */
export async function keyFor(ticket) {
  const kept = sessionStorage.getItem(NAME) ?? "";
  if (!ticket) return kept;
  const answer = await fetch("/dashboard/key", { method: "POST", body: JSON.stringify({ ticket }) });
  const told = await answer.json();
  if (!answer.ok && !kept) throw new Refused(told.error);
  if (answer.ok) sessionStorage.setItem(NAME, told.key);
  return answer.ok ? told.key : kept;
}
