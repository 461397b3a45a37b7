"""What a thread chooses: ``!agent NAME``, ``!model NAME``, ``!mode NAME``. Without a name, each shows its choices.

They apply from the thread's next run. Outside threads, they apply to the thread that the message starts.
"""

from __future__ import annotations

import difflib

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import (
    DEFAULT_MODEL,
    MODEL,
    MODES,
    ModelSection,
    agents_of,
    configured_model,
    is_looser,
    mode_name,
    model_section_of,
    program_names,
)
from codebutler.config.schema import Config
from codebutler.domain.commands import IN_THREADS
from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.commands.showing import agent_lines
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, agent_for, agent_name, prefixes_of, talks, using
from codebutler_worker.store.rows import ChoiceRow, DeferredRow
from codebutler_worker.store.unit_of_work import UnitOfWork

DEFAULT = "default"
FROM_NEXT_RUN = "This applies from the next run."


def agent(invocation: Invocation) -> Todo:
    """Deferred: ask the agent whether it is installed."""
    name, config = invocation.argument.lower(), invocation.settings.config
    if not name:
        return invocation.defer()
    if (conversation := _conversation_of(invocation)) is None:
        return invocation.reply(IN_THREADS)
    chosen = config.agent.default if name == DEFAULT else agent_name(config, name)
    if not talks(config, chosen):
        return invocation.reply(_no_agent(config, name))
    decision = may(admitted(invocation.user), "ask", using(config, invocation.settings.channel_id, chosen))
    if not decision.allowed:
        return invocation.reply(decision.message)
    if name == DEFAULT:
        save_choice(invocation.uow, conversation, agent="")
        return invocation.reply(f"{code(chosen)}, the configured agent, answers here again. {FROM_NEXT_RUN}")
    return invocation.defer(chosen)


async def answer_agent(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Store it unless it could not work now; without a name, list all."""
    if not command.argument:
        config = runtime.settings.config
        line = await runtime.commit(lambda uow: describe_choices(uow, config, command.conversation))
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
    await runtime.commit(lambda uow: save_choice(uow, command.conversation, agent=command.argument))
    return CommandReply((said(f"{code(name)} answers in this thread. {FROM_NEXT_RUN}"),))


def _no_agent(config: Config, name: str) -> str:
    """Why a thread cannot choose it, and what was probably meant."""
    if name in program_names(config):
        return f"{code(name)} is a program, not an agent that answers in a thread."
    known = [prefixes_of(one)[-1] for one in agents_of(config)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean `!agent {near[0]}`?" if near else f"Available: {', '.join(map(code, known))}."
    return f"There is no agent {code(one_line(name, 40))} here. {hint} For a task, write `agent: TASK`."


def model(invocation: Invocation) -> Todo:
    """The service reports at the next run whether it knows the model."""
    name, config = invocation.argument, invocation.settings.config
    if not name:
        return invocation.reply(describe_choices(invocation.uow, config, _conversation_of(invocation) or ""))
    found = _agent_of_thread(invocation, "models")
    if isinstance(found, Todo):
        return found
    conversation, used, section = found
    decision = may(admitted(invocation.user), "ask", using(config, invocation.settings.channel_id, used))
    if not decision.allowed:
        return invocation.reply(decision.message)
    if name.lower() == DEFAULT:
        save_choice(invocation.uow, conversation, model=configured_model(section), model_of=used)
        return invocation.reply(f"{code(used)} uses the configured model here again. {FROM_NEXT_RUN}")
    if not MODEL.fullmatch(name):
        return invocation.reply(f"{code(one_line(name, 60))} is not the name of a model.")
    save_choice(invocation.uow, conversation, model=name, model_of=used)
    return invocation.reply(f"{code(used)} uses the model {code(name)} in this thread. {FROM_NEXT_RUN}")


def mode(invocation: Invocation) -> Todo:
    """A mode that asks less than the configured one is only for people named in the configuration."""
    name, config = invocation.argument.lower(), invocation.settings.config
    if not name:
        return invocation.reply(describe_choices(invocation.uow, config, _conversation_of(invocation) or ""))
    found = _agent_of_thread(invocation, "modes")
    if isinstance(found, Todo):
        return found
    conversation, used, section = found
    place = using(config, invocation.settings.channel_id, used)
    decision = may(admitted(invocation.user), "ask", place)
    chosen = "" if name == DEFAULT else MODES[name]
    if decision.allowed and is_looser(config, used, chosen):
        decision = may(admitted(invocation.user), "loosen", place)
    if not decision.allowed:
        return invocation.reply(decision.message)
    save_choice(invocation.uow, conversation, mode=chosen)
    if not chosen:
        configured = mode_name(section.permission_mode)
        return invocation.reply(
            f"This thread uses the configured mode again: `{configured}`. {FROM_NEXT_RUN}"
        )
    return invocation.reply(f"This thread uses the mode `{name}`. {FROM_NEXT_RUN}")


def describe_choices(uow: UnitOfWork, config: Config, conversation: str) -> str:
    """The thread's agent, model and mode, or the configured ones."""
    chosen = uow.choices.get(conversation) or ChoiceRow(conversation)
    used = agent_for(uow, config, conversation, None)
    section = model_section_of(config, used)
    parts = [f"Agent {code(prefixes_of(used)[-1])}{_origin(bool(chosen.agent))}"]
    if section is not None:
        own = chosen.model if chosen.model_of == used and chosen.model != DEFAULT_MODEL else ""
        name = own or section.model
        parts.append(f"model {code(name) if name else 'its own choice'}{_origin(bool(own))}")
        mode = mode_name(chosen.mode or section.permission_mode)
        parts.append(f"mode `{mode}`{_origin(bool(chosen.mode))}")
    else:
        parts.append("no model or mode to choose")
    return " · ".join(parts)


def _agent_of_thread(invocation: Invocation, what: str) -> tuple[str, str, ModelSection] | Todo:
    """The conversation, its agent and the agent's settings; or the reply that there is nothing to choose."""
    config = invocation.settings.config
    if (conversation := _conversation_of(invocation)) is None:
        return invocation.reply(IN_THREADS)
    used = agent_for(invocation.uow, config, conversation, None)
    section = model_section_of(config, used)
    if section is None:
        return invocation.reply(f"{code(used)} has no {what} to choose from.")
    return conversation, used, section


def _origin(is_chosen: bool) -> str:
    return " (chosen in this thread)" if is_chosen else ""


def _conversation_of(invocation: Invocation) -> str | None:
    """The conversation meant: the thread's, or the one the message starts; a slash command has none."""
    return invocation.conversation or (invocation.place.conversation if invocation.message else None)


def save_choice(uow: UnitOfWork, conversation: str, **fields: str) -> None:
    """Change these fields of what a conversation has chosen."""
    chosen = uow.choices.get(conversation) or ChoiceRow(conversation)
    uow.choices.add(replace(chosen, updated_at=uow.stamp, **fields), known="replace")
