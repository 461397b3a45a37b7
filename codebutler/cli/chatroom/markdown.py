"""Markdown for a terminal (headings, bold, code, lists, links), and a card's choices, each with a number. Pure.

The input has no control characters (``printable``): every escape in the result is ours. A link shows its
address. A chat's own markup in old messages reads the same way, except for its links, which are understood,
too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import ALLOW_ACTION
from codebutler.domain.refs import MessageRef
from codebutler.protocol.control import Choice, Press

LONGEST = 2_000
"""Characters of a line; a longer one stays as it is: looking for pairs takes quadratic time."""
_BOLD, _FAINT, _ITALIC, _UNDERLINE, _STRIKETHROUGH, _CODE = "1", "2", "3", "4", "9", "36"
_END = "\x1b[0m"
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_QUOTE = re.compile(r"\s{0,3}>\s?(.*)")
_ITEM = re.compile(r"(\s*)[-*+]\s+(?:\[([ xX])\]\s+)?(.*)")
_INLINE = re.compile(
    r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]]+)\]\((?P<target>[^\s()]+)\)"
    r"|<(?P<url>(?:https?://|mailto:)[^\s|<>]+)(?:\|(?P<name>[^<>]+))?>"
    r"|(?P<mark>\*\*|__|~~)(?=\S)(?P<strong>.+?)(?<=\S)(?P=mark)"
    r"|(?<![\w*])\*(?=[^\s*])(?P<star>[^*]+)(?<=\S)\*(?![\w*])"
    r"|(?<![\w_])_(?=[^\s_])(?P<low>[^_]+)(?<=\S)_(?![\w_])"
)
_NUMBERS = re.compile(r"\d{1,3}(?:[\s,]+\d{1,3})*")
_YES = frozenset({"yes", "y", "allow"})
_SHORT = _YES | {"no", "n", "deny"}


def render_line(line: str) -> str:
    """One line outside code blocks, with escapes."""
    if len(line) > LONGEST:
        return line
    if _RULE.fullmatch(line):
        return styled("─" * 40, _FAINT)
    if found := _HEADING.fullmatch(line):
        text = found[2].rstrip().rstrip("#").rstrip() or found[2]
        return styled(_inline(text), _BOLD, *([_UNDERLINE] if len(found[1]) == 1 else []))
    if found := _QUOTE.fullmatch(line):
        return f"{styled('│', _FAINT)} {_inline(found[1])}"
    if found := _ITEM.fullmatch(line):
        sign = "•" if found[2] is None else "☐" if found[2] == " " else "☑"
        return f"{found[1]}{sign} {_inline(found[3])}"
    return _inline(line)


def code(line: str) -> str:
    """One line of a code block."""
    return styled(line, _CODE)


def faint(line: str) -> str:
    """Transient lines: tools, progress, figures."""
    return styled(line, _FAINT)


def styled(text: str, *styles: str) -> str:
    """``text`` within the styles (ECMA-48, SGR); styles that end inside it are restarted."""
    begin = f"\x1b[{';'.join(styles)}m"
    return f"{begin}{text.replace(_END, f'{_END}{begin}')}{_END}" if text else ""


def _inline(text: str) -> str:
    return _INLINE.sub(_piece, text)


def _piece(found: re.Match[str]) -> str:
    if found["code"]:
        return styled(found["code"].strip() or found["code"], _CODE)
    if found["label"]:
        return _link(found["label"], found["target"])
    if found["url"]:
        return _link(found["name"] or found["url"], found["url"])
    if found["strong"]:
        return styled(_inline(found["strong"]), _STRIKETHROUGH if found["mark"] == "~~" else _BOLD)
    # One star is bold in a chat's own marks and italic in Markdown.
    return styled(_inline(found["star"]), _BOLD) if found["star"] else styled(_inline(found["low"]), _ITALIC)


def _link(label: str, target: str) -> str:
    shown = styled(target, _UNDERLINE)
    if label.strip("`") in (target, target.removeprefix("mailto:")):
        return shown
    return f"{_inline(label)} ({shown})"


class InvalidChoice(CodeButlerError):  # noqa: N818 - no failure: it is said what may be typed
    """The typed text is not a valid choice."""


def menu(choices: Sequence[Choice]) -> Iterator[str]:
    """The numbered choices, and how to choose."""
    shown = _numbered(choices)
    for number, choice in enumerate(shown, 1):
        yield f"  [{number}] {choice.label}"
    several = any(choice.box for choice in shown)
    yield "Type numbers (1, 3), or your answer." if several else "Type a number, or your answer."


def parse_press(ref: MessageRef, choices: Sequence[Choice], typed: str) -> Press | None:
    """The press that the typed text means, None if it is a message. Raises InvalidChoice."""
    words = typed.strip().lower()
    if _NUMBERS.fullmatch(words):
        return _press_numbers(ref, choices, [int(number) for number in re.findall(r"\d+", words)])
    allowing = [choice for choice in choices if choice.action_id == ALLOW_ACTION]
    if words.rstrip(".!") not in _SHORT or not allowing:
        return None
    if len(allowing) > 1:
        raise InvalidChoice("several decisions are pending: type a number")
    if words.rstrip(".!") in _YES:
        return Press(ref=ref, action_id=allowing[0].action_id, value=allowing[0].value)
    return None


def _press_numbers(ref: MessageRef, choices: Sequence[Choice], numbers: Sequence[int]) -> Press:
    shown = _numbered(choices)
    picked = [_choice_at(shown, number) for number in numbers]
    if not picked[0].box:
        if len(picked) > 1:
            raise InvalidChoice("choose only one: type its number")
        return Press(ref=ref, action_id=picked[0].action_id, value=picked[0].value)
    question = _question(picked[0])
    if any(not choice.box or _question(choice) != question for choice in picked):
        raise InvalidChoice("these belong to different questions: answer one at a time")
    done = next(choice for choice in choices if not choice.box and _question(choice) == question)
    values = tuple(dict.fromkeys(choice.value for choice in picked))
    return Press(ref=ref, action_id=done.action_id, value=done.value, picked=values)


def _numbered(choices: Sequence[Choice]) -> list[Choice]:
    """All but the buttons that submit ticked boxes: typing the numbers does that."""
    ticked = {_question(choice) for choice in choices if choice.box}
    return [choice for choice in choices if choice.box or _question(choice) not in ticked]


def _question(choice: Choice) -> str:
    return choice.value.partition(":")[0]


def _choice_at(choices: Sequence[Choice], number: int) -> Choice:
    if not 1 <= number <= len(choices):
        raise InvalidChoice(f"there is no choice {number}: type 1 to {len(choices)}, or words")
    return choices[number - 1]
