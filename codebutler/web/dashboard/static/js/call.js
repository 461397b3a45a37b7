// One request with the key, which is sent only to a server that proves that it has the key, too.

import { Refused, SOMEBODY_ELSE, refusal } from "./stream.js";

/** The answer's JSON; `body` makes it a POST. Throws Refused if another key is needed, otherwise an error that says why. */
export async function call(key, path, body) {
  if (!(await key.isKnownHere())) throw new Refused(SOMEBODY_ELSE);
  const headers = { authorization: `Bearer ${key.text}` };
  const given = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, { ...given, cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}
