"""Settings of a thread: ``!agent NAME``, ``!model NAME``, ``!mode NAME``. Without a name, each shows its choices.
They apply from the thread's next run. Outside threads, they apply to the thread that the message starts."""

from __future__ import annotations

import difflib
from dataclasses import replace

from codebutler.config.choices import (
    DEFAULT_MODEL,
    MODEL,
    MODES,
    ModelSection,
    is_looser,
    section_of,
    usual_model,
    word_for,
)
from codebutler.config.permission import admitted, may
from codebutler.config.programs import agents_of, program_names
from codebutler.config.schema import Config
from codebutler.domain.commands import IN_THREADS
from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler_worker.commands.showing import agent_lines
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, agent_for, agent_name, prefixes_of, talks, using
from codebutler_worker.store.rows import ChoiceRow, DeferredRow
from codebutler_worker.store.unit_of_work import UnitOfWork

DEFAULT = "default"
NEXT = "This applies from the next run."


def agent(asked: Invocation) -> Todo:
    """Deferred: ask the agent whether it is installed."""
    name, config = asked.argument.lower(), asked.settings.config
    if not name:
        return asked.defer()
    if (where := _thread(asked)) is None:
        return asked.reply(IN_THREADS)
    chosen = config.agent.default if name == DEFAULT else agent_name(config, name)
    if not talks(config, chosen):
        return asked.reply(_no_agent(config, name))
    decision = may(admitted(asked.user), "ask", using(config, asked.settings.channel_id, chosen))
    if not decision.allowed:
        return asked.reply(decision.told)
    if name == DEFAULT:
        _keep(asked.uow, where, agent="")
        return asked.reply(f"{code(chosen)}, the configured agent, answers here again. {NEXT}")
    return asked.defer(chosen)


async def answer_agent(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Store it unless it could not work now; without a name, list all."""
    if not command.argument:
        config = runtime.settings.config
        line = await runtime.commit(lambda uow: shown(uow, config, command.conversation))
        surveys = await runtime.agents.survey()
        commands = [
            f"Commands of {code(one.prefix)}: {' '.join(code('/' + name) for name in one.commands)}"
            for one in surveys
            if one.commands
        ]
        return CommandReply((said("\n".join([line, *agent_lines(config, surveys), *commands])),))
    name = prefixes_of(command.argument)[-1]
    found = next((one for one in await runtime.agents.survey() if one.prefix == name), None)
    if found is not None and not found.ready:
        note = f": {plain(found.note)}" if found.note else ""
        return CommandReply((said(f"{code(name)} is not ready here{note}."),), ok=False)
    await runtime.commit(lambda uow: _keep(uow, command.conversation, agent=command.argument))
    return CommandReply((said(f"{code(name)} answers in this thread. {NEXT}"),))


def _no_agent(config: Config, name: str) -> str:
    """Why a thread cannot choose it, and what was probably meant."""
    if name in program_names(config):
        return f"{code(name)} is a program, not an agent that answers in a thread."
    known = [prefixes_of(one)[-1] for one in agents_of(config)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean `!agent {near[0]}`?" if near else f"Available: {', '.join(map(code, known))}."
    return f"There is no agent {code(one_line(name, 40))} here. {hint} For a task, write `agent: TASK`."


def model(asked: Invocation) -> Todo:
    """The service reports at the next run whether it knows the model."""
    name, config = asked.argument, asked.settings.config
    if not name:
        return asked.reply(shown(asked.uow, config, _thread(asked) or ""))
    found = _agent_of_thread(asked, "models")
    if isinstance(found, Todo):
        return found
    where, used, section = found
    decision = may(admitted(asked.user), "ask", using(config, asked.settings.channel_id, used))
    if not decision.allowed:
        return asked.reply(decision.told)
    if name.lower() == DEFAULT:
        _keep(asked.uow, where, model=usual_model(section), model_of=used)
        return asked.reply(f"{code(used)} uses the configured model here again. {NEXT}")
    if not MODEL.fullmatch(name):
        return asked.reply(f"{code(one_line(name, 60))} is not the name of a model.")
    _keep(asked.uow, where, model=name, model_of=used)
    return asked.reply(f"{code(used)} uses the model {code(name)} in this thread. {NEXT}")


def mode(asked: Invocation) -> Todo:
    """A mode that asks less than the configured one is only for people named in the configuration."""
    name, config = asked.argument.lower(), asked.settings.config
    if not name:
        return asked.reply(shown(asked.uow, config, _thread(asked) or ""))
    found = _agent_of_thread(asked, "modes")
    if isinstance(found, Todo):
        return found
    where, used, section = found
    place = using(config, asked.settings.channel_id, used)
    decision = may(admitted(asked.user), "ask", place)
    chosen = "" if name == DEFAULT else MODES[name]
    if decision.allowed and is_looser(config, used, chosen):
        decision = may(admitted(asked.user), "loosen", place)
    if not decision.allowed:
        return asked.reply(decision.told)
    _keep(asked.uow, where, mode=chosen)
    if not chosen:
        return asked.reply(
            f"This thread uses the configured mode again: `{word_for(section.permission_mode)}`. {NEXT}"
        )
    return asked.reply(f"This thread uses the mode `{name}`. {NEXT}")


def shown(uow: UnitOfWork, config: Config, conversation: str) -> str:
    """The thread's agent, model and mode, or the configured ones."""
    chosen, used = uow.choices.get(conversation), agent_for(uow, config, conversation, None)
    section = section_of(config, used)
    parts = [f"Agent {code(prefixes_of(used)[-1])}{_whose(bool(chosen.agent))}"]
    if section is not None:
        own = chosen.model if chosen.model_of == used and chosen.model != DEFAULT_MODEL else ""
        name = own or section.model
        parts.append(f"model {code(name) if name else 'its own choice'}{_whose(bool(own))}")
        parts.append(f"mode `{word_for(chosen.mode or section.permission_mode)}`{_whose(bool(chosen.mode))}")
    else:
        parts.append("no model or mode to choose")
    return " · ".join(parts)


def _agent_of_thread(asked: Invocation, what: str) -> tuple[str, str, ModelSection] | Todo:
    """The conversation, its agent and the agent's settings; or the reply that there is nothing to choose."""
    config = asked.settings.config
    if (where := _thread(asked)) is None:
        return asked.reply(IN_THREADS)
    used = agent_for(asked.uow, config, where, None)
    section = section_of(config, used)
    return (where, used, section) if section else asked.reply(f"{code(used)} has no {what} to choose from.")


def _whose(is_chosen: bool) -> str:
    return " (chosen in this thread)" if is_chosen else ""


def _thread(asked: Invocation) -> str | None:
    """The conversation meant: the thread's, or the one the message starts; a slash command has none."""
    return asked.conversation or (asked.place.conversation if asked.message else None)


def _keep(uow: UnitOfWork, conversation: str, **fields: str) -> ChoiceRow:
    row = replace(uow.choices.get(conversation), updated_at=uow.stamp, **fields)
    uow.choices.put(row)
    return row
