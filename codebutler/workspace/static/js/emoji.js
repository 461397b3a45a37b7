// The few emoji names that appear in a working channel; an unknown one shows as its name.

const EMOJI = {
  hourglass_flowing_sand: "⏳", hourglass: "⌛", eyes: "👀", white_check_mark: "✅", heavy_check_mark: "✔️", x: "❌",
  octagonal_sign: "🛑", warning: "⚠️", question: "❓", thinking_face: "🤔", arrows_counterclockwise: "🔄", wrench: "🔧",
  gear: "⚙️", rocket: "🚀", tada: "🎉", "+1": "👍", thumbsup: "👍", "-1": "👎", thumbsdown: "👎", heart: "❤️", wave: "👋",
  robot_face: "🤖", bulb: "💡", memo: "📝", lock: "🔒", key: "🔑", fire: "🔥", bug: "🐛", sparkles: "✨", zap: "⚡",
  clock1: "🕐", bell: "🔔", zzz: "💤", pray: "🙏", clap: "👏", smile: "😄", slightly_smiling_face: "🙂", package: "📦",
  speech_balloon: "💬", mag: "🔍", scroll: "📜", stopwatch: "⏱️", moneybag: "💰", microphone: "🎤", art: "🎨",
};

export const emoji = (name) => EMOJI[name.split("::")[0]] || `:${name}:`;
export const isEmoji = (name) => name in EMOJI;
/** What a person may react with. */
export const REACTIONS = ["+1", "-1", "heart", "tada", "eyes", "white_check_mark", "x", "smile", "thinking_face", "pray", "rocket", "fire", "bug", "wave", "clap", "question"];
/** Names that begin like this, with their pictures. */
export const emojiLike = (start) => Object.entries(EMOJI).filter(([name]) => name.startsWith(start));
