"""``!jobs``, ``!in`` and ``!at``."""

from __future__ import annotations

from codebutler.parent.commands.asked import Asked
from codebutler.schedule.commands import UnknownJobError, split_at, split_in
from codebutler.text.markup import person


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
