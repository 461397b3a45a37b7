// Addresses that stand bare in a text.

const BARE = /https?:\/\/(?:(?!&[lg]t;)[^\s<>])*(?:(?!&[lg]t;)[^\s<>.,;:!?'")\]])/;
const SPLIT = new RegExp(`(${BARE.source})`);

/** The pattern of a bare address, for a larger one: its end is not the sentence's full stop. */
export const BARE_SOURCE = BARE.source;

/** Have a link open beside the page and tell nobody where it was. */
export const beside = (anchor) => Object.assign(anchor, { target: "_blank", rel: "noopener noreferrer" });

/** A link that does so. */
export function link(text, address) {
  return beside(Object.assign(document.createElement("a"), { textContent: text, href: address }));
}

/** Make the bare addresses under a node links. */
export function linkBare(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (BARE.test(walker.currentNode.data) && !walker.currentNode.parentElement.closest("a, code")) found.push(walker.currentNode);
  for (const text of found) text.replaceWith(...text.data.split(SPLIT).map((part, at) => (at % 2 ? link(part, part) : part)));
}
