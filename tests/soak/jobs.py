"""The job of each repository, every minute: what its file says, and what has to become of each of its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codebutler.workspace.state import Message
from tests.history import FINAL, Violation

LABEL = "Every minute"
JOBS = f"jobs: [{{name: minute, cron: '* * * * *', command: echo done >> minutes.txt, label: {LABEL}}}]\n"
WORK_FILE = "minutes.txt"


def headers(messages: Mapping[str, Message]) -> list[Message]:
    """The messages that say that the job starts, of one channel."""
    return [each for each in messages.values() if each.by_app and each.text.startswith(f"⏰ *{LABEL}*")]


def marks(header: Message) -> set[str]:
    return {name for name, people in header.reactions.items() if people}


def is_over(header: Message) -> bool:
    """Its only mark is a final one."""
    names = marks(header)
    return len(names) == 1 and names <= FINAL


def judge_jobs(begun: Sequence[Message], done: int, continued: int, minutes: float) -> list[Violation]:
    """Each time was said and ended once, and the work was done as often: ``done`` times, of which people asked for
    ``continued`` again. There were ``minutes`` of it."""
    found = [
        Violation("lost", None, f"job of {each.ts}: its marks are {sorted(marks(each)) or 'none'}")
        for each in begun
        if not is_over(each)
    ]
    succeeded = sum(marks(header) == {"white_check_mark"} for header in begun)
    if done < succeeded:
        found.append(Violation("lost", None, f"jobs: {succeeded} ended well, work done {done} times"))
    if done > len(begun) + continued:
        found.append(Violation("doubled", None, f"jobs: begun {len(begun)} times, work done {done} times"))
    if len(begun) > minutes + 1:
        found.append(Violation("doubled", None, f"jobs: begun {len(begun)} times in {minutes:.1f} minutes"))
    return found
