"""``!agents``: who could work here."""

from __future__ import annotations

from codebutler.config.programs import program_names, program_of
from codebutler.config.schema import Config
from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler_worker.agents.survey import Survey
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.deferred import Reply
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.naming import agent_name
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code
from codebutler_worker.store.rows import DeferredRow


def run(asked: Asked) -> Todo:
    """Their programs have to be asked."""
    return asked.defer()


async def answer(desk: Desk, _deferred: DeferredRow) -> Reply:
    """Each agent on a line."""
    config = desk.settings.config
    lines = [_line(one, config.agent.default) for one in await desk.agents.survey()]
    programs = [program_of(config, name) for name in sorted(program_names(config))]
    lines += [
        f"▫️ {code(rule.prefix + ':')} · {plain(rule.description or rule.binary)}" for rule in programs if rule
    ]
    return Reply((said("\n".join(["Available agents:", *lines])),))


def _line(one: Survey, default: str) -> str:
    is_default = agent_name(Config(), one.prefix) == default
    parts = [
        f"{'✅' if one.ready else '❌'} {code(one.prefix + ':')}",
        *([f"version {plain(one.version)}"] if one.version else []),
        *(["ready"] if one.ready else []),
        *([plain(one.note)] if one.note else []),
        *(["the default here"] if is_default else []),
    ]
    return " · ".join(parts)
