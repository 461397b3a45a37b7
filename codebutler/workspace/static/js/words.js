// Errors in words that help a person. The workspace's error code is in brackets.

const WORDS = {
  operation_timeout: "The app did not answer within 3 seconds. Is it running? Try again.",
  ratelimited: "The workspace asks for a pause (rate limit). Wait a moment and try again.",
  is_archived: "This channel is archived: nobody can write in it.",
  msg_too_long: "This is too long for a message. Shorten it, or attach it as a file.",
  file_upload_size_restricted: "This file is larger than 100 MB.",
  not_found: "This dialog no longer exists. Close it and start again.",
  invalid_view_response: "The app answered with a dialog that cannot be shown.",
  name_taken: "This name is taken.",
  invalid_name: "Use 1 to 40 letters, digits, spaces, dots or dashes.",
  invalid_name_specials: "Use only lower-case letters, digits, - and _.",
  invalid_name_required: "A channel needs a name.",
  already_in_channel: "They are already in this channel.",
  not_in_channel: "They are not in this channel.",
  not_allowed: "Only the owner of this workspace may do that.",
  too_long: "This is too long.",
  invalid_arguments: "The workspace did not understand this.",
  message_not_found: "This message is gone.",
  already_reacted: "You have already reacted with this.",
  too_many_emoji: "No more reactions fit under this message.",
};

/** A sentence for an error of the Api; `withCode` adds the workspace's error code. */
export function words(error, withCode = true) {
  const code = error.message;
  if (error instanceof TypeError) return "The workspace cannot be reached. Is it still running?";
  if (code === "HTTP 429") return WORDS.ratelimited;
  if (/^HTTP 5/.test(code)) return `The workspace failed (${code}). Try again.`;
  if (!WORDS[code]) return withCode ? `That did not work (${code}).` : "Try again.";
  return withCode ? `${WORDS[code]} (${code})` : WORDS[code];
}

/** Show a note that needs no answer; it is read aloud, and disappears after a while. */
export function notice(text, isError = true) {
  const place = document.getElementById("notices");
  const item = Object.assign(document.createElement("p"), { textContent: text, className: isError ? "notice error" : "notice" });
  place.append(item);
  setTimeout(() => item.remove(), 8000);
}
