// The emoji names that appear in a working channel; an unknown one shows as its name.

const EMOJI = {
  __proto__: null, // no other name is known
  hourglass_flowing_sand: "⏳", hourglass: "⌛", eyes: "👀", white_check_mark: "✅", heavy_check_mark: "✔️", x: "❌",
  octagonal_sign: "🛑", warning: "⚠️", question: "❓", thinking_face: "🤔", arrows_counterclockwise: "🔄", wrench: "🔧",
  gear: "⚙️", rocket: "🚀", tada: "🎉", "+1": "👍", thumbsup: "👍", "-1": "👎", thumbsdown: "👎", heart: "❤️", wave: "👋",
  robot_face: "🤖", bulb: "💡", memo: "📝", lock: "🔒", key: "🔑", fire: "🔥", bug: "🐛", sparkles: "✨", zap: "⚡",
  clock1: "🕐", bell: "🔔", zzz: "💤", pray: "🙏", clap: "👏", smile: "😄", slightly_smiling_face: "🙂", package: "📦",
  speech_balloon: "💬", mag: "🔍", scroll: "📜", stopwatch: "⏱️", moneybag: "💰", microphone: "🎤", art: "🎨",
  // Names that bots use in messages about builds, deploys and people.
  smiley: "😃", grinning: "😀", grin: "😁", joy: "😂", laughing: "😆", sweat_smile: "😅", wink: "😉", blush: "😊", sunglasses: "😎",
  heart_eyes: "😍", sob: "😭", cry: "😢", scream: "😱", confused: "😕", disappointed: "😞", rage: "😡", neutral_face: "😐",
  upside_down_face: "🙃", rolling_eyes: "🙄", sleeping: "😴", face_with_monocle: "🧐", exploding_head: "🤯", partying_face: "🥳",
  saluting_face: "🫡", ok_hand: "👌", raised_hands: "🙌", muscle: "💪", point_right: "👉", point_left: "👈", point_up: "☝️",
  point_down: "👇", handshake: "🤝", v: "✌️", hand: "✋", raised_hand: "✋", shrug: "🤷", facepalm: "🤦", 100: "💯", star: "⭐",
  star2: "🌟", trophy: "🏆", medal: "🏅", crown: "👑", gift: "🎁", balloon: "🎈", confetti_ball: "🎊", cake: "🍰", coffee: "☕", beer: "🍺",
  pizza: "🍕", apple: "🍎", sunny: "☀️", cloud: "☁️", umbrella: "☔", snowflake: "❄️", rainbow: "🌈", ocean: "🌊", seedling: "🌱",
  evergreen_tree: "🌲", dog: "🐶", cat: "🐱", unicorn_face: "🦄", penguin: "🐧", snake: "🐍", whale: "🐳", crab: "🦀", octopus: "🐙",
  ship: "🚢", airplane: "✈️", car: "🚗", bike: "🚲", house: "🏠", office: "🏢", construction: "🚧", rotating_light: "🚨",
  red_circle: "🔴", large_blue_circle: "🔵", large_green_circle: "🟢", large_yellow_circle: "🟡", large_orange_circle: "🟠",
  white_circle: "⚪", black_circle: "⚫", white_square: "⬜", large_green_square: "🟩", large_red_square: "🟥", heavy_plus_sign: "➕",
  heavy_minus_sign: "➖", heavy_multiplication_x: "✖️", no_entry: "⛔", no_entry_sign: "🚫", exclamation: "❗", heavy_exclamation_mark: "❗",
  grey_question: "❔", information_source: "ℹ️", ballot_box_with_check: "☑️", recycle: "♻️", link: "🔗", pushpin: "📌", round_pushpin: "📍",
  paperclip: "📎", clipboard: "📋", calendar: "📅", date: "📅", spiral_calendar_pad: "🗓️", chart_with_upwards_trend: "📈",
  chart_with_downwards_trend: "📉", bar_chart: "📊", books: "📚", book: "📖", page_facing_up: "📄", file_folder: "📁", inbox_tray: "📥",
  outbox_tray: "📤", email: "📧", incoming_envelope: "📨", label: "🏷️", computer: "💻", desktop_computer: "🖥️", iphone: "📱",
  floppy_disk: "💾", battery: "🔋", electric_plug: "🔌", mag_right: "🔎", unlock: "🔓", shield: "🛡️", hammer: "🔨",
  hammer_and_wrench: "🛠️", nut_and_bolt: "🔩", test_tube: "🧪", microscope: "🔬", telescope: "🔭", satellite: "📡", pill: "💊",
  broom: "🧹", wastebasket: "🗑️", alarm_clock: "⏰", watch: "⌚", repeat: "🔁", arrow_right: "➡️", arrow_left: "⬅️",
  arrow_up: "⬆️", arrow_down: "⬇️", arrow_forward: "▶️", fast_forward: "⏩", black_square_for_stop: "⏹️", double_vertical_bar: "⏸️",
  thought_balloon: "💭", loudspeaker: "📢", mega: "📣", no_bell: "🔕", musical_note: "🎵", dart: "🎯", game_die: "🎲", jigsaw: "🧩",
  crystal_ball: "🔮", magic_wand: "🪄", skull: "💀", ghost: "👻", alien: "👽", poop: "💩", broken_heart: "💔", green_heart: "💚",
  blue_heart: "💙", yellow_heart: "💛", purple_heart: "💜", checkered_flag: "🏁", triangular_flag_on_post: "🚩", white_flag: "🏳️",
};

export const emoji = (name) => EMOJI[name.split("::")[0]] || `:${name}:`;
export const isEmoji = (name) => name in EMOJI;
/** The emoji for reactions. */
export const REACTIONS = ["+1", "-1", "heart", "tada", "eyes", "white_check_mark", "x", "smile", "thinking_face", "pray", "rocket", "fire", "bug", "wave", "clap", "question"];
/** Names with this prefix, and their emoji. */
export const emojiLike = (start) => Object.entries(EMOJI).filter(([name]) => name.startsWith(start));
