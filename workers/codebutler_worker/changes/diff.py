"""A diff in the chat: in full if it is short, otherwise a list of files to choose from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from codebutler.domain.message import DIFF_FILE_ACTION, Button, said
from codebutler_worker.changes.card import file_line, headline
from codebutler_worker.present.lines import FENCE_CHARS, count, fenced
from codebutler_worker.runtime.deferred import Attachment, CommandReply
from codebutler_worker.tree.tree import Difference, FileChange

PER_PAGE = 8
"""Files per page: a row or two of buttons on a phone, within every chat's limits."""
LABEL_CHARS = 24
FENCED_LINES = 30
"""A longer diff is sent as a file, which chats fold and colour; code in a message has no colours."""
ASIDE = "Say `!diff` in the channel to get it as a file."
ALL, FILE, PAGE = "a", "f", "p"
"""A button's target, at the end of its value: everything, or a file or page by number."""


def listed(
    found: Difference,
    limit: int,
    *,
    page: int = 0,
    whole: bool = False,
    whispered: bool = False,
    link: str = "",
) -> CommandReply:
    """The diff if it fits ``limit`` characters, otherwise a page of its files; ``whole``: send it as a file. A file
    cannot be private (``whispered``). ``link``: the page that shows all of it."""
    head, body = f"{headline(found)}{link}", _short(found.body, limit)
    if body and not (found.cut or page or whole):
        return CommandReply((said(f"{head}\n{body}"),))
    if (whole or len(found.files) == 1) and not whispered:
        lines = [head, *map(file_line, found.files[: 0 if whole else 1]), *_cut(found)]
        return CommandReply((said("\n".join(lines)),), (attached(found, "changes.diff", "Changes"),))
    shown = found.files[page * PER_PAGE : (page + 1) * PER_PAGE]
    lines = [head, *map(file_line, shown)]
    buttons = [
        _button(found, _label(file, found.files), f"{FILE}{page * PER_PAGE + number}")
        for number, file in enumerate(shown)
    ]
    if left := max(0, len(found.files) - (page + 1) * PER_PAGE):
        lines.append(f"… and {count(left, 'more file')}")
        buttons.append(_button(found, "More files", f"{PAGE}{page + 1}"))
    if whispered:
        lines.append(ASIDE)
    else:
        buttons.append(_button(found, "All in one file", ALL))
    return CommandReply((said("\n".join(lines), *buttons),))


def one_file(found: Difference, file: FileChange, limit: int, *, whispered: bool = False) -> CommandReply:
    """The diff of one file; ``found`` holds only that file."""
    head = file_line(file)
    if (body := _short(found.body, limit)) and not found.cut:
        return CommandReply((said(f"{head}\n{body}"),))
    if whispered:
        return CommandReply((said(f"{head}\n{ASIDE}"),))
    name = file.path.rpartition("/")[2]
    said_of = said("\n".join([head, *_cut(found)]))
    return CommandReply((said_of,), (attached(found, f"{name}.diff", file.path),))


def _cut(found: Difference) -> list[str]:
    kept = count(len(found.body.encode("utf-8", "replace")) // 2**20, "MB")
    return [f"_The file holds the first {kept} only._"] if found.cut else []


def attached(found: Difference, name: str, title: str) -> Attachment:
    """As a file whose name tells the chat its type."""
    return Attachment(name, found.body.encode("utf-8", "replace"), title)


def _short(body: str, limit: int) -> str:
    """The lines as code; "" if they are too long for a message."""
    if len(body.splitlines()) > FENCED_LINES:
        return ""
    block, hidden = fenced(body, min(limit, FENCE_CHARS) - 200)
    return "" if hidden else block


def _button(found: Difference, label: str, wish: str) -> Button:
    return Button(label, DIFF_FILE_ACTION, f"{found.before} {found.after} {wish}")


def _label(file: FileChange, files: Sequence[FileChange]) -> str:
    """The file's name, with its directory if another file has the same name."""
    name = file.path.rpartition("/")[2]
    if sum(other.path.rpartition("/")[2] == name for other in files) > 1:
        name = "/".join(file.path.split("/")[-2:])
    return name if len(name) <= LABEL_CHARS else f"…{name[1 - LABEL_CHARS :]}"
