"""ShellBackend: programs of `commands` (and `run`) in a pseudo-terminal, behind the AgentBackend port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.programs import CHECKS
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.platform.lookup import look_up, missing_rule, path_of
from codebutler.platform.system import this_system
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import GONE, AgentEvent, Started, ToolUse, TurnRequest
from codebutler_worker.agents.running import AgentContext, TurnBackend, instructions
from codebutler_worker.agents.session_logs import SessionLog, session_of
from codebutler_worker.agents.shell.output import EnvelopeReader, OutputBacklog
from codebutler_worker.agents.shell.run import NO_INPUT, Pace, ProgramRun
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.policy import for_agents, for_commands
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.sandbox.pty import PtyProcess
from codebutler_worker.tools.programs import UNATTENDED

SUMMARY_CHARS = 150
UNRECORDED = "⚠️ The session's log could not be saved: {why}."


class ShellBackend(TurnBackend[ProgramRun]):
    """Starts ``rule``'s program for each turn. It has no sessions to resume: each turn is independent."""

    def __init__(self, rule: CommandRule, context: AgentContext, around: Surroundings, pace: Pace) -> None:
        super().__init__(context.clock, context.logs)
        self.name = rule.prefix
        self._rule = rule
        self._context = context
        self._around = around
        self._pace = pace
        self._instructions = around.instructions if rule.envelope else ""

    async def type(self, turn_id: str, text: str) -> str:
        """Type into a running session; "" if that worked, else one line that says why not."""
        run = self._live.get(turn_id)
        return GONE if run is None else await run.type(text)

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        yield Started(session_of(turn.turn_id))
        yield ToolUse(turn.turn_id, self.name, one_line(turn.prompt, SUMMARY_CHARS))
        text = "\n\n".join(part for part in (self._instructions, turn.prompt) if part)
        backlog, envelopes = (
            OutputBacklog(),
            EnvelopeReader(self._pace.unclosed_s) if self._rule.envelope else None,
        )

        def take(data: bytes, newline_returns: bool) -> None:
            """Called with its output on the reader's thread, once it is in the log."""
            if envelopes is not None:
                envelopes.feed(data, self._clock.monotonic())
            else:
                backlog.push(data, newline_returns=newline_returns)

        interactive = self._rule.mode == "interactive"
        typed = b"" if interactive else NO_INPUT
        async with (
            await self._context.network_policy.open(turn.workdir) as access,
            await PtyProcess(self._launch(turn, text, access), take, record.write, typed).start() as process,
        ):
            run = ProgramRun(
                process, backlog, self._clock, self._pace, interactive=interactive, envelopes=envelopes
            )
            self._live[turn.turn_id] = run
            if turn.turn_id in self._stopped:
                await run.end("stopped")
            await run.begin(text, delay=bool(self._instructions))
            async with aclosing(run.events()) as events:
                async for event in events:
                    yield event
            notes = [run.last_note, UNRECORDED.format(why=record.failed) if record.failed else ""]
            if any(notes):
                yield replace(run.last, note="\n".join(filter(None, notes)))
            yield run.finished()
            self._live[turn.turn_id] = None

    def _launch(self, turn: TurnRequest, text: str, access: NetworkAccess) -> Launch:
        binary = look_up(self._rule.binary, self._around.path, turn.workdir)
        if binary is None:
            raise missing_rule(self._rule.binary, self._around.home)
        policy = policy_of(self._around, self._rule, binary, turn.workdir, access)
        words = (*this_system().restores_signals, *argv(self._rule, binary, text))
        return self._context.sandbox.wrap(words, replace(policy, conversation=turn.conversation))


def argv(rule: CommandRule, binary: Path, text: str) -> tuple[str, ...]:
    """The command line; a one-shot's text is its last argument."""
    return (str(binary), *rule.args, *((text,) if rule.mode == "one-shot" else ()))


def policy_of(
    around: Surroundings, rule: CommandRule, binary: Path, workdir: Path, access: NetworkAccess
) -> SandboxPolicy:
    """What the program may see: the checkout, the system, itself; nothing of the home; and its network access."""
    env = {
        **around.env(term="xterm-256color"),
        **(UNATTENDED if rule.mode == "one-shot" else {}),
        **access.env,
    }
    del env["HOME"]
    return SandboxPolicy(
        workdir=workdir,
        home=around.home,
        readable=(binary,),
        env=env,
        network=access.network,
        own_terminal=True,
    )


def shell_backend(
    rule: CommandRule, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock
) -> ShellBackend:
    """The agent behind ``rule``'s prefix. Checks run what agents wrote, so they get the network access of agents."""
    config = settings.config
    taught = instructions(Path(settings.path), config.envelope.prompt_file) if rule.envelope else ""
    pace = Pace(
        flush_s=config.output.flush_interval_ms / 1000,
        limit_s=config.session.timeout_minutes * 60,
        activation_s=config.envelope.activation_delay_ms / 1000,
        unclosed_s=config.envelope.unclosed_timeout_ms / 1000,
    )
    around = Surroundings(home, path_of(settings.agent_env), settings.agent_env, taught)
    outlet_for = for_agents if rule.prefix == CHECKS.prefix else for_commands
    return ShellBackend(rule, AgentContext.of(settings, sandbox, clock, outlet_for), around, pace)
