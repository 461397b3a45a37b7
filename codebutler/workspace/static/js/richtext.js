// Slack's rich_text blocks to DOM nodes.

import { tag } from "./dom.js";
import { emoji } from "./emoji.js";

const STYLES = { bold: "strong", italic: "em", strike: "s", code: "code" };

function inline(element, model) {
  switch (element.type) {
    case "text": return styled(element, element.text);
    case "link": return link(element);
    case "emoji": return emoji(element.name);
    case "user": return tag("span", "mention", `@${model.userName(element.user_id)}`);
    case "channel": return tag("span", "mention", `#${model.channels.get(element.channel_id)?.name || element.channel_id}`);
    case "broadcast": return tag("span", "mention", `@${element.range}`);
    default: return element.fallback || element.text || "";
  }
}

function styled({ style = {} }, text) {
  return Object.keys(STYLES).filter((name) => style[name]).reduce((node, name) => tag(STYLES[name], "", node), text);
}

function link(element) {
  const text = element.text || element.url;
  if (!/^(https?:|mailto:)/.test(element.url)) return styled(element, text);
  return Object.assign(tag("a", "", styled(element, text)), { href: element.url, target: "_blank", rel: "noopener noreferrer" });
}

function part(element, model) {
  const content = () => element.elements.map((child) => inline(child, model));
  switch (element.type) {
    case "rich_text_list":
      return tag(element.style === "ordered" ? "ol" : "ul", "", ...element.elements.map((item) => tag("li", "", part(item, model))));
    case "rich_text_preformatted": return tag("pre", "", tag("code", "", ...content()));
    case "rich_text_quote": return tag("blockquote", "text", ...content());
    default: return tag("div", "text", ...content());
  }
}

/** The nodes of one rich_text block. */
export const richText = (block, model) => block.elements.map((element) => part(element, model));
