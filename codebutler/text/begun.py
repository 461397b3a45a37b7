"""Secrets that a text shows a part of: where it was cut, where a message ends and the next one goes on, or where a
terminal has not shown the rest yet. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CUT = "…"
"""What stands where a text was cut short."""
LEAST_CHARS = 8
"""Fewer characters of a secret than this are not looked for."""

# How tokens begin, as far as nothing else does; and where other things do too, with a digit among what follows.
_CLEAR = (
    r"xox[a-z](?:\.xox[a-z])?-|xapp-\d|gh[pousr]_|github_pat_|glpat-|sk-(?:ant|proj|or|svcacct)-|AKIA|ASIA|AIza|GOCSPX-"
    r"|[rs]k_(?:live|test)_|whsec_|dop_v1_|dckr_pat_|shp(?:at|ca|pa|ss)_|eyJ"
)
_DOUBTFUL = r"(?:sk-|tvly-|gsk_|xai-|ya29\.|npm_|pypi-|hf_|SG\.)(?=[\w-]{0,80}\d)"
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{_CLEAR}|{_DOUBTFUL})[\w.-]{{4,300}}\Z")
_LONGEST_TOKEN = 320


class Begun:
    """``spellings`` are exact values. Linear in the length of a text, whatever it holds."""

    def __init__(self, spellings: Iterable[str] = ()) -> None:
        self._heads: dict[str, list[str]] = {}
        self._tails: dict[str, list[str]] = {}
        self._longest = 0
        for spelling in spellings:
            if len(spelling) > LEAST_CHARS:
                self._heads.setdefault(spelling[:LEAST_CHARS], []).append(spelling)
                self._tails.setdefault(spelling[-LEAST_CHARS:], []).append(spelling)
                self._longest = max(self._longest, len(spelling))

    def hide(self, text: str, mark: str, *, cut: bool = False) -> str:
        """``text`` with ``mark`` in the place of the end of a value at its start, of the start of one at its end, and
        of the start of a value or token before each ``…``. ``cut``: it ends as if there were one."""
        if CUT not in text:
            shown = self._without_start(text, mark, cut=cut)
        else:
            *cut_off, rest = text.split(CUT)
            ends = [self._without_start(piece, mark, cut=True) for piece in cut_off]
            shown = CUT.join([*ends, self._without_start(rest, mark, cut=cut)])
        return self._without_end(shown, mark)

    def _without_start(self, text: str, mark: str, *, cut: bool) -> str:
        """Without the start of a value at the end of ``text``, or (``cut``) of what looks like a token."""
        if len(text) < LEAST_CHARS:
            return text
        first = max(0, len(text) - self._longest)
        for place in range(first, len(text) - LEAST_CHARS + 1):
            for spelling in self._heads.get(text[place : place + LEAST_CHARS], ()):
                if spelling.startswith(text[place:]):
                    return text[:place] + mark
        token = _TOKEN.search(text, max(0, len(text) - _LONGEST_TOKEN)) if cut else None
        return text if token is None else text[: token.start()] + mark

    def _without_end(self, text: str, mark: str) -> str:
        """Without the end of a value at the start of ``text``."""
        for place in range(min(self._longest, len(text)), LEAST_CHARS - 1, -1):
            for spelling in self._tails.get(text[place - LEAST_CHARS : place], ()):
                if spelling.endswith(text[:place]):
                    return mark + text[place:]
        return text
