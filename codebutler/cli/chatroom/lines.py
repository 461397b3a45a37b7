"""Lines to one message: a line that ends in a backslash, or a fence that is open, goes on with the next. Pure."""

from __future__ import annotations

_FENCE = "```"


class Lines:
    """Takes lines until a message is whole. A paste comes as one line with line ends in it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether more is to come."""
        return bool(self._lines)

    def add(self, line: str) -> str | None:
        """The whole message, None while more is to come."""
        self._lines.append(line)
        if self._goes_on():
            return None
        return self.end()

    def end(self) -> str:
        """What there is, as the message; "" if nothing is."""
        message = "\n".join(line.removesuffix("\\") if _continues(line) else line for line in self._lines)
        self._lines = []
        return message

    def _goes_on(self) -> bool:
        fences = sum(each.lstrip().startswith(_FENCE) for line in self._lines for each in line.split("\n"))
        return fences % 2 == 1 or _continues(self._lines[-1])


def _continues(line: str) -> bool:
    """A backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
