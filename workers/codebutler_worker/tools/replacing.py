"""Replace a text in a file: find the place, and keep the file's own version of what the model left unchanged. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from codebutler_worker.tools.matching import MOST, PLAIN, TAB_COLUMNS, Match, columns, indent, matches
from codebutler_worker.tools.outcome import ToolError
from codebutler_worker.tools.programs import clipped

LINES_NAMED = 20
TELLING_CHARS = 20
"""A shorter text may be in a file by chance."""
COMPARED = 250_000
"""Lines times lines: a larger comparison would take too long, so the text is replaced as a whole."""
COMPARED_CHARS = 200
"""How much of each line is compared."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces the file from ``start`` to ``end`` by ``text``."""

    start: int
    end: int
    text: str


def changes(
    path: str, text: str, old: str, new: str, *, every: bool = False
) -> tuple[tuple[Replacement, ...], str]:
    """The changes that put ``new`` in place of ``old``, and what was ignored in finding it ("" = nothing).

    Raises ToolError if ``old`` is not in the file, if it is there more than once and not ``every`` one is meant, or if
    nothing would change.
    """
    found = matches(text, old, new)
    if not found:
        raise ToolError(f"{path}: {_missing(text, old, new)}")
    if len(found) >= MOST:
        raise ToolError(f"{path}: `old` occurs more than {MOST} times: use a command")
    if len(found) > 1 and not every:
        numbers = list(dict.fromkeys(str(_line(text, match)) for match in found[:LINES_NAMED]))
        where = f"line{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        more = " and more" if len(found) > LINES_NAMED else ""
        raise ToolError(
            f"{path}: `old` occurs {len(found)} times, in {where}{more}: "
            "give more of the lines around it, or set `all`"
        )
    usual = _usual_of(text)
    made = tuple(_change(text, match, usual) for match in _apart(found))
    if all(text[change.start : change.end] == change.text for change in made):
        raise ToolError(f"{path}: `old` and `new` are the same")
    return made, found[0].rule


def applied(text: str, made: tuple[Replacement, ...]) -> str:
    """The file with the changes applied."""
    parts, at = [], 0
    for change in made:
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])


def _apart(found: tuple[Match, ...]) -> list[Match]:
    """The matches without those that overlap an earlier one."""
    kept: list[Match] = []
    for match in found:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return kept


def _missing(text: str, old: str, new: str) -> str:
    near = nearest(text, old)
    if len(new.strip()) >= TELLING_CHARS and new in text:
        return f"`old` is not in the file, but `new` is: it seems to be done already.\n{near}".rstrip()
    return f"`old` is not in the file.\n{near}".rstrip()


def _line(text: str, match: Match) -> int:
    return text.count("\n", 0, match.start) + 1


def _change(text: str, match: Match, usual: str) -> Replacement:
    start, end = match.start, match.end
    if match.whole and not match.wanted.new:
        return _without(text, start, end)
    region = text[start:end].split("\n")
    theirs = [line.removesuffix("\r") for line in region[:-1]] + region[-1:]
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in region[:-1]]
    usual = max(sorted(set(ends)), key=ends.count, default=usual)
    old, new = match.wanted.old.split("\n"), match.wanted.new.split("\n")
    lines: list[tuple[str, str]] = []
    for same, (first, last), (at, until) in _compared(old, new):
        if same:
            lines += [(theirs[number], [*ends, usual][number]) for number in range(first, last)]
            continue
        pairs = last - first == until - at
        for number in range(at, until):
            before = first + number - at
            told = (theirs[before], old[before]) if pairs else ("", "")
            lines.append((_adapted(new[number], *told, match, text[start:end]), usual))
    return Replacement(start, end, "".join(line + ended for line, ended in lines[:-1]) + lines[-1][0])


def _without(text: str, start: int, end: int) -> Replacement:
    """Removes whole lines, and with them the line end after the last one, or else before the first."""
    for ended in ("\r\n", "\n"):
        if text.startswith(ended, end):
            return Replacement(start, end + len(ended), "")
    for ended in ("\r\n", "\n"):
        if text.endswith(ended, 0, start):
            return Replacement(start - len(ended), end, "")
    return Replacement(start, end, "")


def _compared(old: list[str], new: list[str]) -> list[tuple[bool, tuple[int, int], tuple[int, int]]]:
    """Which lines stay, and which are replaced by which, beginning with the equal lines at both ends."""
    # A model never means to change white space at line ends.
    ours, theirs = [line.rstrip() for line in old], [line.rstrip() for line in new]
    head = _same(ours, theirs)
    tail = _same(ours[head:][::-1], theirs[head:][::-1])
    ours, theirs = ours[head : len(old) - tail], theirs[head : len(new) - tail]
    opcodes = [("replace", 0, len(ours), 0, len(theirs))]
    if len(ours) * len(theirs) <= COMPARED:
        opcodes = list(SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes())
    middle = [(tag == "equal", (head + a, head + b), (head + c, head + d)) for tag, a, b, c, d in opcodes]
    end = (len(old) - tail, len(old)), (len(new) - tail, len(new))
    return [(True, (0, head), (0, head)), *middle, (True, *end)]


def _same(one: list[str], other: list[str]) -> int:
    """The number of equal lines at the beginning."""
    return next(
        (at for at, (ours, theirs) in enumerate(zip(one, other, strict=False)) if ours != theirs),
        min(len(one), len(other)),
    )


def _adapted(line: str, theirs: str, old: str, match: Match, region: str) -> str:
    """A new line in the file's style. ``theirs`` is the file's line that it replaces; the model saw it as ``old``."""
    slipped = {
        ord(char): PLAIN[ord(char)] for char in match.wanted.old if ord(char) in PLAIN and char not in region
    }
    if "typographic" in match.rule and len(theirs.strip()) == len(old.strip()):
        line = indent(line) + _kept(line.lstrip(" \t"), theirs.strip(" \t"), old.strip(" \t"), slipped)
    elif slipped:
        line = line.translate(slipped)
    if match.whole:
        line = line.rstrip(" \t")
    return _deepened(line, match) if match.depths and line else line


def _kept(line: str, theirs: str, old: str, slipped: dict[int, str]) -> str:
    """The line, with the file's version of each part that is unchanged from ``old``."""
    if max(len(old), len(line)) > COMPARED_CHARS or len(theirs) != len(old):
        return line.translate(slipped)
    opcodes = SequenceMatcher(None, old, line, autojunk=False).get_opcodes()
    return "".join(
        theirs[a:b] if tag == "equal" else line[c:d].translate(slipped) for tag, a, b, c, d in opcodes
    )


def _deepened(line: str, match: Match) -> str:
    """The line with the file's indentation: that of the nearest known depth, plus or minus the difference."""
    white, depths = indent(line), match.depths
    if white in depths:
        return depths[white] + line.lstrip(" \t")
    near = min(depths, key=lambda known: (abs(columns(known) - columns(white)), -columns(known)))
    extra = round((columns(white) - columns(near)) * _ratio(match))
    theirs = depths[near]
    if extra < 0:
        theirs = _narrowed(theirs, columns(theirs) + extra)
    elif "\t" in theirs or (not theirs and any("\t" in each for each in depths.values())):
        theirs += "\t" * (extra // TAB_COLUMNS) + " " * (extra % TAB_COLUMNS)
    else:
        theirs += " " * extra
    return theirs + line.lstrip(" \t")


def _ratio(match: Match) -> float:
    """How much wider the file's indentation step is than the model's."""
    least, most = min(match.depths, key=columns), max(match.depths, key=columns)
    wide = columns(most) - columns(least)
    return (columns(match.depths[most]) - columns(match.depths[least])) / wide if wide else 1.0


def _narrowed(white: str, width: int) -> str:
    while white and columns(white) > width:
        white = white[:-1]
    return white


def _usual_of(text: str) -> str:
    """The file's usual line end."""
    dos = text.count("\r\n")
    return "\r\n" if dos and dos * 2 >= text.count("\n") else "\n"


AROUND = 2
MOST_SHOWN = 40
MOST_LINES = 20_000
LINE_CHARS = 200
LIKE = 0.3
"""Below this, two lines are unrelated."""


def nearest(text: str, old: str) -> str:
    """The lines most like ``old``, with their numbers; "" if none are similar."""
    sought = [line for line in old.split("\n") if line.strip()]
    lines = [line.removesuffix("\r") for line in text.split("\n")[:MOST_LINES]]
    if not sought:
        return ""
    # The longest line stands for all of them.
    at, anchor = max(enumerate(old.split("\n")), key=lambda one: len(one[1].strip()))
    wanted = _pieces(anchor)
    scored = ((_likeness(wanted, _pieces(line)), -number) for number, line in enumerate(lines))
    likeness, best = max(scored, default=(0.0, 0))
    if likeness < LIKE:
        return ""
    first = max(0, -best - at - AROUND)
    last = min(len(lines), -best - at + len(old.split("\n")) + AROUND, first + MOST_SHOWN)
    last = max(last, min(len(lines), -best + 1))
    first = max(first, last - MOST_SHOWN)
    shown = "\n".join(f"{number + 1}\t{clipped(lines[number], LINE_CHARS)}" for number in range(first, last))
    return f"The nearest lines:\n{shown}"


def _pieces(line: str) -> frozenset[str]:
    plain = " ".join(line[:LINE_CHARS].lower().split())
    return frozenset(plain[at : at + 3] for at in range(max(1, len(plain) - 2))) if plain else frozenset()


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
