"""The parent's short commands: ``!jobs``, ``!in``, ``!at``, ``!move``, ``!new NAME``; and ``help``, ``status`` and
``list`` in a direct message, for all of a person's repositories."""

from __future__ import annotations

from codebutler.domain.commands import DIRECT
from codebutler.parent.apphome_page import NEEDS, SIGNS, done_line, need_line, repo_line
from codebutler.parent.commands.asked import Asked, AskedDirectly
from codebutler.schedule.commands import UnknownJobError, split_at, split_in
from codebutler.text.markup import code, person, plain


async def jobs(asked: Asked) -> str:
    """List what is scheduled; run, pause or resume a job; or cancel a timer."""
    schedule, asker = asked.resources.schedule, asked.asker
    await schedule.ready()
    verb, _, name = asked.argument.strip().partition(" ")
    try:
        match verb.lower():
            case "run":
                return schedule.run(asker.repo, name, asker)
            case "pause":
                return await schedule.pause(asker.repo, name, f"by {person(asker.user)}")
            case "resume":
                return await schedule.resume(asker.repo, name)
            case "cancel":
                return await schedule.cancel(name.strip("` "), asker.repo)
    except UnknownJobError as error:
        return str(error)
    return schedule.listing(asker.repo)


async def later(asked: Asked) -> str:
    """Set a timer that runs after a delay."""
    await asked.resources.schedule.ready()
    try:
        moment, text = split_in(asked.argument, asked.resources.clock.now())
    except ValueError as error:
        return str(error)
    return await asked.resources.schedule.set_timer(moment, text, asked.asker)


async def at(asked: Asked) -> str:
    """Set a timer for a time of day."""
    schedule = asked.resources.schedule
    await schedule.ready()
    try:
        moment, text = split_at(asked.argument, asked.resources.clock.now(), schedule.zone)
    except ValueError as error:
        return str(error)
    return await schedule.set_timer(moment, text, asked.asker)


async def move(asked: Asked) -> str:
    """List the hosts that have the repository, or move it to one of them."""
    return await asked.resources.moves.answer(asked.argument, asked.asker)


async def new_repo(asked: Asked) -> str:
    """Make or clone a repository with its channel."""
    name, _, source = asked.argument.strip().partition(" ")
    return await asked.resources.new_repos.make(name, source.strip(), asked.asker)


MAX_LISTED = 15


def usage(asked: AskedDirectly) -> str:
    """How to talk to us here."""
    names = sorted(repo.name for repo in asked.repos.values())
    if len(names) == 1:
        where = f"Write a message: the agent of **{plain(names[0])}** works on it. Reply in the thread to continue."
    else:
        listed = ", ".join(f"**{plain(name)}**" for name in names[:MAX_LISTED])
        where = (
            f"Write a message, and I ask which repository it is about: {listed}. "
            f"{code(f'{names[0]}: …')} chooses it at once. Reply in the thread to continue."
        )
    return "\n".join(
        [
            where,
            *(
                f"`{word.name}`  {word.gist}, everywhere"
                for word in DIRECT.values()
                if word.direct != "answers.usage"
            ),
            "In a thread, all other commands work as in its channel: `!help` there lists them.",
            "_Everybody who may use a repository sees its conversations in `!list`, including those started here._",
        ]
    )


def status(asked: AskedDirectly) -> str:
    """Every repository on a line."""
    lines = []
    for card in asked.cards:
        trouble = f" · 🔴 {plain(card.trouble)}" if card.trouble else ""
        lines.append(repo_line(card) + trouble)
    return "\n".join(lines) or "No repository is served."


def latest(asked: AskedDirectly) -> str:
    """The latest conversations of all repositories, those that need somebody first."""
    pairs = [(card, turn) for card in asked.cards for turn in card.turns]
    newest = sorted(pairs, key=lambda pair: pair[1].at, reverse=True)
    needs = [need_line(card, turn, asked.now) for card, turn in newest if turn.state in NEEDS]
    rest = [done_line(card, turn, asked.now) for card, turn in newest if turn.state in SIGNS]
    lines = [*needs, *rest]
    left = len(lines) - MAX_LISTED
    return "\n".join([*lines[:MAX_LISTED], *([f"… and {left} more"] if left > 0 else [])]) or "Nothing yet."
