"""A race in a worker: started, told of, decided; with real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from codebutler.domain.message import DIFF_ACTION, DISCARD_RACE_ACTION, PICK_RACE_ACTION, Message
from codebutler.domain.model import Command, Post
from tests.events import clicked, posted
from tests.programs import require
from tests.worker_kit import CHANNEL, USER, Parent, Run

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")
PICK, DISCARD, DIFF = PICK_RACE_ACTION, DISCARD_RACE_ACTION, DIFF_ACTION


def begun(path: Path) -> Path:
    """A repository with one commit."""
    require("git")
    (path / "app.py").write_text("print('hello')\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        git(path, *words)
    return path


def git(path: Path, *words: str) -> str:
    ran = subprocess.run(["git", *IDENTITY, *words], cwd=path, check=True, capture_output=True, text=True)
    return ran.stdout


def race(
    parent: Parent,
    ref: str = "100.1",
    argument: str = "claude rehearsal: Fix the login",
    thread: str | None = None,
    user: str = USER,
) -> None:
    event = posted(channel=CHANNEL, ref=ref, user=user, text=f"!race {argument}", thread=thread)
    parent.deliver(event, Command(name="race", argument=argument))


def say(parent: Parent, name: str, ref: str, thread: str = "100.1") -> None:
    event = posted(channel=CHANNEL, ref=ref, user=USER, text=f"!{name}", thread=thread)
    parent.deliver(event, Command(name=name, argument=""))


async def racers(parent: Parent, since: int = 0) -> tuple[Run, Run]:
    """The runs of both agents, in the order of the race, whichever has begun first."""
    runs = [await parent.run(since), await parent.run(since + 1)]
    one, two = sorted(runs, key=lambda run: run.request.conversation)
    return one, two


def changes(run: Run, text: str, answer: str = "Done.", session: str = "session-1") -> None:
    (run.request.workdir / "app.py").write_text(text)
    run.finish(answer, session)


async def card_of(parent: Parent) -> Post:
    found = await parent.until(lambda: _card(parent), flow=True)
    assert found is not None
    return found


def _card(parent: Parent) -> Post | None:
    found = (post for post in parent.posts if "**1. `" in post.message.markdown)
    return next(found, None)


def card_now(parent: Parent) -> Message:
    """What the card shows now."""
    shown = [edit.message for edit in parent.updates if "**1. `" in edit.message.markdown]
    card = _card(parent)
    assert card is not None
    return shown[-1] if shown else card.message


def press(
    parent: Parent, card: Post | Message, action: str, at: int = 0, user: str = USER, moment: str = "1"
) -> None:
    message = card.message if isinstance(card, Post) else card
    button = [each for each in message.buttons if each.action == action][at]
    parent.deliver(
        clicked(
            channel=CHANNEL,
            user=user,
            action_id=button.action,
            value=button.value,
            message="9000.9",
            press=f"{action}{at}{moment}",
            thread="100.1",
        )
    )


async def both_done(parent: Parent) -> Post:
    race(parent)
    one, two = await racers(parent)
    changes(one, "one\n", "I wrote one.", "session-one")
    changes(two, "two\n", "I wrote two.", "session-two")
    return await card_of(parent)
