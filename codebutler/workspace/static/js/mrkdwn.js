// Slack's mrkdwn to DOM nodes. Text never becomes markup: every node is made by hand.

import { emoji, isEmoji } from "./emoji.js";
import { BARE_SOURCE, link } from "./links.js";

const INLINE = new RegExp([
  /`([^`\n]+)`/, /<([^<>\n]+)>/, new RegExp(`(${BARE_SOURCE})`),
  /(?<![\w*])\*([^*\n]+)\*(?![\w*])/, /(?<![\w_])_([^_\n]+)_(?![\w_])/, /(?<![\w~])~([^~\n]+)~(?![\w~])/, /:([a-z0-9_+-]+):/,
].map(({ source }) => source).join("|"), "g");
const PICTURES_ONLY = /^(?:\p{Extended_Pictographic}[\u{fe0f}\u{200d}\u{1f3fb}-\u{1f3ff}]*|:[a-z0-9_+-]+:|\s)+$/u;
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };

const unescape = (text) => text.replace(/&(?:lt|gt|amp);/g, (entity) => ENTITIES[entity]);

function element(tag, children, className) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...[children].flat());
  return node;
}

function reference(content, names, places) {
  const [target, label] = content.split("|");
  if (target.startsWith("@")) return element("span", `@${label || names(target.slice(1))}`, "mention");
  if (target.startsWith("#")) return element("span", `#${label || places(target.slice(1)) || target.slice(1)}`, "mention");
  if (target.startsWith("!")) return element("span", `@${target.slice(1).split("^")[0]}`, "mention");
  if (!/^(https?:|mailto:)/.test(target)) return document.createTextNode(unescape(`<${content}>`));
  return link(unescape(label || target), unescape(target));
}

function inline(text, names, places) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(unescape(text.slice(end, match.index)));
    const [whole, code, ref, bare, bold, italic, strike, name] = match;
    if (code) nodes.push(element("code", unescape(code)));
    else if (ref) nodes.push(reference(ref, names, places));
    else if (bare) nodes.push(link(unescape(bare), unescape(bare)));
    else if (bold) nodes.push(element("strong", inline(bold, names, places)));
    else if (italic) nodes.push(element("em", inline(italic, names, places)));
    else if (strike) nodes.push(element("s", inline(strike, names, places)));
    else nodes.push(isEmoji(name) ? emoji(name) : whole);
    end = match.index + whole.length;
  }
  nodes.push(unescape(text.slice(end)));
  return nodes;
}

function prose(text, names, places) {
  const nodes = [];
  for (const part of text.split(/((?:^(?:>|&gt;).*(?:\n|$))+)/m)) {
    if (!part.trim()) continue;
    if (/^(>|&gt;)/.test(part)) {
      const quoted = part.replace(/^(>|&gt;) ?/gm, "").trimEnd();
      nodes.push(element("blockquote", element("div", inline(quoted, names, places), "text")));
    } else nodes.push(element("div", inline(part.replace(/^\n|\n$/g, ""), names, places), "text"));
  }
  return nodes;
}

/** The nodes of one mrkdwn text; `names` maps a user ID to a name, `places` a channel ID. */
export function mrkdwn(text, names, places = () => "") {
  return text.split(/(```[\s\S]*?```)/).flatMap((part) => {
    if (!part.startsWith("```") || part.length < 6) return prose(part, names, places);
    return [element("pre", element("code", unescape(part.slice(3, -3).replace(/^\n/, ""))))];
  });
}

/** Whether a text is only a few emoji: those are shown large. */
export const isPicturesOnly = (text) => text.length < 60 && PICTURES_ONLY.test(text) && [...text.matchAll(/:([a-z0-9_+-]+):/g)].every(([, name]) => isEmoji(name));
