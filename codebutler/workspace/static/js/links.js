// Bare addresses in a text.

const BARE = /https?:\/\/(?:(?!&[lg]t;)[^\s<>])*(?:(?!&[lg]t;)[^\s<>.,;:!?'")\]])/;
const SPLIT = new RegExp(`(${BARE.source})`);

/** A bare address, as part of a larger pattern: it does not end with the sentence's full stop. */
export const BARE_SOURCE = BARE.source;

/** Make a link open in a new tab, without a referrer. */
export const beside = (anchor) => Object.assign(anchor, { target: "_blank", rel: "noopener noreferrer" });

/** Such a link. */
export function link(text, address) {
  return beside(Object.assign(document.createElement("a"), { textContent: text, href: address }));
}

/** Turn the bare addresses below a node into links. */
export function linkBare(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (BARE.test(walker.currentNode.data) && !walker.currentNode.parentElement.closest("a, code")) found.push(walker.currentNode);
  for (const text of found) text.replaceWith(...text.data.split(SPLIT).map((part, at) => (at % 2 ? link(part, part) : part)));
}
