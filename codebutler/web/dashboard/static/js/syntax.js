// Colours for a line of code in any language: comments, strings, numbers and common keywords.

import { tag } from "./dom.js";

const KEYWORDS = new Set(
  ("abstract and as assert async await begin break case catch class const continue def default defer del do elif else end enum except export " +
    "extends extern false final finally fn for foreach from func function global go goto if impl implements import in include instanceof interface is " +
    "lambda let local loop match mod module mut namespace new nil none None nonlocal not null or package pass private protected pub public raise " +
    "readonly require return select self Self static struct super switch then this throw trait true True False try type typeof union unless until use " +
    "using val var void when where while with yield").split(" "),
);
const SLASHES = /^(c|cc|cpp|cs|css|dart|go|h|hpp|java|js|jsx|kt|less|m|mjs|php|rs|scala|scss|swift|ts|tsx|vue|zig)$/;
const HASHES = /^(bash|cfg|conf|dockerfile|ex|exs|ini|jl|makefile|mk|nix|pl|ps1|py|pyi|r|rb|sh|tf|toml|yaml|yml|zsh)$/;
const DASHES = /^(elm|hs|lua|sql)$/;
const PLAIN = /^(csv|diff|log|md|patch|rst|svg|tsv|txt|xml|html)$/;
const LONGEST = 400; // longer lines are minified code, where colours do not help

const TEXT = `"(?:[^"\\\\]|\\\\.)*"?|'(?:[^'\\\\]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?`;
const NUMBER = "\\b(?:0[xob][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";
const WORD = "[A-Za-z_$][\\w$]*";

/** The tokenizer for a file's lines; null for files in which colours make no sense. */
export function grammar(path) {
  const name = path.split("/").pop().toLowerCase();
  const kind = name.includes(".") ? name.split(".").pop() : name;
  if (PLAIN.test(kind)) return null;
  const remark = SLASHES.test(kind) ? "//.*|/\\*.*?(?:\\*/|$)|^\\s*\\*(?=\\s|/|$).*" : HASHES.test(kind) ? "(?<=^|\\s)#.*" : DASHES.test(kind) ? "--.*" : "(?!)";
  return new RegExp(`(?<c>${remark})|(?<s>${TEXT})|(?<n>${NUMBER})|(?<w>${WORD})`, "g");
}

/** The line as nodes: text, and spans with a class. */
export function coloured(text, finds) {
  if (!finds || text.length > LONGEST) return [text];
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(finds)) {
    const { c, s, n } = found.groups;
    const kind = c ? "c" : s ? "s" : n ? "n" : KEYWORDS.has(found[0]) ? "k" : "";
    if (!kind) continue;
    if (found.index > done) nodes.push(text.slice(done, found.index));
    nodes.push(tag("span", kind, found[0]));
    done = found.index + found[0].length;
  }
  if (done < text.length) nodes.push(text.slice(done));
  return nodes;
}
