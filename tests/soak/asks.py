"""What people ask for, by kind: the words, and what has to become of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tests.soak.stage import WORK_FILE

# The longer ones do not fit into one post; those that are longer still become a file.
POST_LINES, POST_CHARS = 60, 100
FILE_LINES, FILE_CHARS = 60, 260
PER_FILE = 100  # messages of a kind whose files have to stay small however many there are
SPREAD = "work-"
EDITED = 50_000  # added to the number of a message: the number of its edited text


@dataclass(frozen=True, slots=True)
class Ask:
    """``instead``: the words it is edited to, with that token. ``paper``: a file that comes with it. ``old``: a file
    that has to be there before, because it asks to delete it; a person allows that or not, by ``is_allowed``. The
    others as ``Said`` has them."""

    token: str
    text: str
    instead: str = ""
    edited: str = ""
    paper: str = ""
    old: str = ""
    lines: tuple[str, ...] = ()
    is_timer: bool = False


def ask(kind: str, number: int) -> Ask:
    """The ``number``th message of a soak, of a kind of ``MIX``."""
    token = f"token-{number:05d}"
    text = _append(token)
    match kind:
        case "wait":
            return Ask(token, f"{text}\n\nwait 3 seconds")
        case "post":
            return _long(token, number, POST_LINES, POST_CHARS)
        case "file":
            return _long(token, number, FILE_LINES, FILE_CHARS)
        case "paper":
            line = f"paper-{number:05d}"
            return Ask(token, f"{text}\n\nread this", paper=f"{line}\n", lines=(line,))
        case "delete":
            old = f"old-{number:05d}.txt"
            return Ask(token, f"{text}\n\ndelete {old}", old=old)
        case "edit":
            instead = f"token-{number + EDITED:05d}"
            return Ask(token, text, instead=instead, edited=_append(instead))
        case "timer":
            return Ask(token, f"!in 4s {text}", is_timer=True)
        case "spread":
            return Ask(token, f"append `{token}` to {SPREAD}{number // PER_FILE:04d}.txt")
    return Ask(token, text)


def is_allowed(number: int) -> bool:
    """Whether a person lets the file of the ``number``th message be deleted."""
    return number % 3 > 0


def _append(token: str) -> str:
    return f"append `{token}` to {WORK_FILE}"


def _long(token: str, number: int, lines: int, chars: int) -> Ask:
    names = tuple(f"line-{number:05d}/{line:03d}" for line in range(lines))
    text = "\n".join(f"{name} {'x' * (chars - len(name) - 1)}" for name in names)
    return Ask(token, f"{_append(token)}\n\ncreate notes/{number:05d}.txt with\n{text}", lines=names)
