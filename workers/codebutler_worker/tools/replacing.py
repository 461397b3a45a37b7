"""Replace a text in a file: find the place, and keep the file's own version of what the model left unchanged. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher

from msgspec import Struct

from codebutler_worker.tools.matching import (
    MAX_MATCHES,
    PLAIN,
    TAB_COLUMNS,
    Match,
    columns,
    find_matches,
    indent,
)
from codebutler_worker.tools.programs import clip_line
from codebutler_worker.tools.tool import ToolError

MAX_LISTED_LINES = 20
DISTINCTIVE_CHARS = 20
"""A shorter text may be in a file by chance."""
MAX_COMPARISONS = 250_000
"""Lines times lines: a larger comparison would take too long, so the text is replaced as a whole."""
MAX_COMPARED_CHARS = 200
"""How much of each line is compared."""

CONTEXT_LINES = 2
MAX_SHOWN_LINES = 40
MAX_SEARCHED_LINES = 20_000
LINE_CHARS = 200
MIN_LIKENESS = 0.3
"""Below this, two lines are unrelated."""


class Replacement(Struct, frozen=True):
    """Replaces the file from ``start`` to ``end`` by ``text``."""

    start: int
    end: int
    text: str


def find_replacements(
    path: str, text: str, old: str, new: str, *, every: bool = False
) -> tuple[tuple[Replacement, ...], str]:
    """The changes that put ``new`` in place of ``old``, and what was ignored in finding it ("" = nothing).

    Raises ToolError if ``old`` is not in the file, if it is there more than once and not ``every`` one is meant, or if
    nothing would change.
    """
    found = find_matches(text, old, new)
    if not found:
        raise ToolError(f"{path}: {_not_found_text(text, old, new)}")
    if len(found) >= MAX_MATCHES:
        raise ToolError(f"{path}: `old` occurs more than {MAX_MATCHES} times: use a command")
    if len(found) > 1 and not every:
        numbers = list(dict.fromkeys(str(_line(text, match)) for match in found[:MAX_LISTED_LINES]))
        where = f"line{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        more = " and more" if len(found) > MAX_LISTED_LINES else ""
        raise ToolError(
            f"{path}: `old` occurs {len(found)} times, in {where}{more}: "
            "give more of the lines around it, or set `all`"
        )
    line_end = _usual_line_end(text)
    replacements = tuple(_replacement(text, match, line_end) for match in _without_overlaps(found))
    if all(text[change.start : change.end] == change.text for change in replacements):
        raise ToolError(f"{path}: `old` and `new` are the same")
    return replacements, found[0].rule


def apply_replacements(text: str, replacements: tuple[Replacement, ...]) -> str:
    """The file with the changes applied."""
    parts, at = [], 0
    for change in replacements:
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])


def _without_overlaps(found: tuple[Match, ...]) -> list[Match]:
    separate: list[Match] = []
    for match in found:
        if not separate or match.start >= separate[-1].end:
            separate.append(match)
    return separate


def _not_found_text(text: str, old: str, new: str) -> str:
    near = nearest_lines(text, old)
    if len(new.strip()) >= DISTINCTIVE_CHARS and new in text:
        return f"`old` is not in the file, but `new` is: it seems to be done already.\n{near}".rstrip()
    return f"`old` is not in the file.\n{near}".rstrip()


def _line(text: str, match: Match) -> int:
    return text.count("\n", 0, match.start) + 1


def _replacement(text: str, match: Match, line_end: str) -> Replacement:
    start, end = match.start, match.end
    if match.whole and not match.wording.new:
        return _remove_lines(text, start, end)
    region = text[start:end].split("\n")
    theirs = [line.removesuffix("\r") for line in region[:-1]] + region[-1:]
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in region[:-1]]
    line_end = max(sorted(set(ends)), key=ends.count, default=line_end)
    old, new = match.wording.old.split("\n"), match.wording.new.split("\n")
    lines: list[tuple[str, str]] = []
    ends_inside = not match.whole and text[end : end + 1] not in ("", "\r", "\n")
    for same, (first, last), (at, until) in _compare(old, new, ends_inside=ends_inside):
        if same:
            lines += [(theirs[number], [*ends, line_end][number]) for number in range(first, last)]
            continue
        is_paired = last - first == until - at
        for number in range(at, until):
            before = first + number - at
            pair = (theirs[before], old[before]) if is_paired else ("", "")
            lines.append((_adapt(new[number], *pair, match, text[start:end]), line_end))
    return Replacement(
        start, end, "".join(line + line_ending for line, line_ending in lines[:-1]) + lines[-1][0]
    )


def _remove_lines(text: str, start: int, end: int) -> Replacement:
    """Removes whole lines, and with them the line end after the last one, or else before the first."""
    for line_end in ("\r\n", "\n"):
        if text.startswith(line_end, end):
            return Replacement(start, end + len(line_end), "")
    for line_end in ("\r\n", "\n"):
        if text.endswith(line_end, 0, start):
            return Replacement(start - len(line_end), end, "")
    return Replacement(start, end, "")


def _compare(
    old: list[str], new: list[str], *, ends_inside: bool
) -> list[tuple[bool, tuple[int, int], tuple[int, int]]]:
    """Which lines stay, and which are replaced by which, beginning with the equal lines at both ends. ``ends_inside``:
    the last one is only the beginning of a line."""
    # A model never means to change white space at line ends, unless that is all it changes.
    ours, theirs = [line.rstrip() for line in old], [line.rstrip() for line in new]
    if ours == theirs:
        ours, theirs = old, new
    elif ends_inside:
        ours[-1], theirs[-1] = old[-1], new[-1]
    head = _common_prefix(ours, theirs)
    tail = _common_prefix(ours[head:][::-1], theirs[head:][::-1])
    ours, theirs = ours[head : len(old) - tail], theirs[head : len(new) - tail]
    opcodes = [("replace", 0, len(ours), 0, len(theirs))]
    if len(ours) * len(theirs) <= MAX_COMPARISONS:
        opcodes = list(SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes())
    middle = [(tag == "equal", (head + a, head + b), (head + c, head + d)) for tag, a, b, c, d in opcodes]
    end = (len(old) - tail, len(old)), (len(new) - tail, len(new))
    return [(True, (0, head), (0, head)), *middle, (True, *end)]


def _common_prefix(one: list[str], other: list[str]) -> int:
    return next(
        (at for at, (ours, theirs) in enumerate(zip(one, other, strict=False)) if ours != theirs),
        min(len(one), len(other)),
    )


def _adapt(line: str, theirs: str, old: str, match: Match, region: str) -> str:
    """A new line in the file's style. ``theirs`` is the file's line that it replaces; the model saw it as ``old``."""
    plain_chars = {
        ord(char): PLAIN[ord(char)] for char in match.wording.old if ord(char) in PLAIN and char not in region
    }
    if "typographic" in match.rule and len(theirs.strip()) == len(old.strip()):
        line = indent(line) + _keep_unchanged(
            line.lstrip(" \t"), theirs.strip(" \t"), old.strip(" \t"), plain_chars
        )
    elif plain_chars:
        line = line.translate(plain_chars)
    if match.whole:
        line = line.rstrip(" \t")
    return _reindent(line, match) if match.depths and line else line


def _keep_unchanged(line: str, theirs: str, old: str, plain_chars: dict[int, str]) -> str:
    """The line, with the file's version of each part that is unchanged from ``old``."""
    if max(len(old), len(line)) > MAX_COMPARED_CHARS or len(theirs) != len(old):
        return line.translate(plain_chars)
    opcodes = SequenceMatcher(None, old, line, autojunk=False).get_opcodes()
    return "".join(
        theirs[a:b] if tag == "equal" else line[c:d].translate(plain_chars) for tag, a, b, c, d in opcodes
    )


def _reindent(line: str, match: Match) -> str:
    """The line with the file's indentation: that of the nearest known depth, plus or minus the difference."""
    white, depths = indent(line), match.depths
    if white in depths:
        return depths[white] + line.lstrip(" \t")
    near = min(depths, key=lambda known: (abs(columns(known) - columns(white)), -columns(known)))
    extra = round((columns(white) - columns(near)) * _ratio(match))
    theirs = depths[near]
    if extra < 0:
        theirs = _narrow(theirs, columns(theirs) + extra)
    elif "\t" in theirs or (not theirs and any("\t" in each for each in depths.values())):
        theirs += "\t" * (extra // TAB_COLUMNS) + " " * (extra % TAB_COLUMNS)
    else:
        theirs += " " * extra
    return theirs + line.lstrip(" \t")


def _ratio(match: Match) -> float:
    """How much wider the file's indentation step is than the model's."""
    shallowest, deepest = min(match.depths, key=columns), max(match.depths, key=columns)
    wide = columns(deepest) - columns(shallowest)
    return (columns(match.depths[deepest]) - columns(match.depths[shallowest])) / wide if wide else 1.0


def _narrow(white: str, width: int) -> str:
    while white and columns(white) > width:
        white = white[:-1]
    return white


def _usual_line_end(text: str) -> str:
    dos = text.count("\r\n")
    return "\r\n" if dos and dos * 2 >= text.count("\n") else "\n"


def nearest_lines(text: str, old: str) -> str:
    """The lines most like ``old``, with their numbers; "" if none are similar."""
    non_blank = [line for line in old.split("\n") if line.strip()]
    lines = [line.removesuffix("\r") for line in text.split("\n")[:MAX_SEARCHED_LINES]]
    if not non_blank:
        return ""
    # The longest line stands for all of them.
    at, anchor = max(enumerate(old.split("\n")), key=lambda one: len(one[1].strip()))
    anchor_trigrams = _trigrams(anchor)
    scored = ((_likeness(anchor_trigrams, _trigrams(line)), -number) for number, line in enumerate(lines))
    likeness, best = max(scored, default=(0.0, 0))
    if likeness < MIN_LIKENESS:
        return ""
    first = max(0, -best - at - CONTEXT_LINES)
    last = min(len(lines), -best - at + len(old.split("\n")) + CONTEXT_LINES, first + MAX_SHOWN_LINES)
    last = max(last, min(len(lines), -best + 1))
    first = max(first, last - MAX_SHOWN_LINES)
    numbered = "\n".join(
        f"{number + 1}\t{clip_line(lines[number], LINE_CHARS)}" for number in range(first, last)
    )
    return f"The nearest lines:\n{numbered}"


def _trigrams(line: str) -> frozenset[str]:
    plain = " ".join(line[:LINE_CHARS].lower().split())
    return frozenset(plain[at : at + 3] for at in range(max(1, len(plain) - 2))) if plain else frozenset()


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
