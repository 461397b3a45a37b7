// The few emoji names that appear in a working channel; an unknown one shows as its name.

const EMOJI = {
  hourglass_flowing_sand: "⏳", hourglass: "⌛", eyes: "👀", white_check_mark: "✅", heavy_check_mark: "✔️", x: "❌",
  octagonal_sign: "🛑", warning: "⚠️", question: "❓", thinking_face: "🤔", arrows_counterclockwise: "🔄", wrench: "🔧",
  gear: "⚙️", rocket: "🚀", tada: "🎉", "+1": "👍", thumbsup: "👍", "-1": "👎", thumbsdown: "👎", heart: "❤️", wave: "👋",
  robot_face: "🤖", bulb: "💡", memo: "📝", lock: "🔒", key: "🔑", fire: "🔥", bug: "🐛", sparkles: "✨", zap: "⚡",
  clock1: "🕐", bell: "🔔", zzz: "💤", pray: "🙏", clap: "👏", smile: "😄", slightly_smiling_face: "🙂", package: "📦",
};

export const emoji = (name) => EMOJI[name] || `:${name}:`;
export const isEmoji = (name) => name in EMOJI;
