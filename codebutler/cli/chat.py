"""`codebutler chat`, `send`, `stop` and `adopt`: talk to a repository's agent from this machine, as its operator, or
continue a terminal's session in its channel."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, field

from codebutler.cli.chatroom.state import split_answer
from codebutler.cli.context import home, known_commands, known_repositories, repository, send_request
from codebutler.cli.output import (
    age,
    is_interactive,
    notice,
    print_error,
    print_json,
    print_line,
    print_table,
    printable_lines,
)
from codebutler.config.agent_sessions import PastSession, find_session, terminal_sessions
from codebutler.config.git_repo import repo_root
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.errors import EXIT_FAILED, RegistryError
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.protocol.control import ControlReply, Posted, Said, SendRequest, StopRequest

MAX_LISTED = 20
WORDS_CHARS = 70
NOT_REGISTERED = "{path} is not registered: run this in a registered repository, or name one with --repo"
NO_SESSIONS = "No Claude Code or Kimi Code session was started in a terminal in {path}."
NEEDS_DECISION = "(waiting for your decision: answer in its thread in the chat, or in `codebutler chat`)"
OUTCOME_TEXTS = {
    "stopped": "the run was stopped",
    "refused": "refused: nothing was run",
    "interrupted": "the run was interrupted; answer in its thread whether to continue",
}


def chat(
    repo: Annotated[
        str,
        typer.Argument(
            help="A repository's name; optional if there is only one.", autocompletion=known_repositories
        ),
    ] = "",
    fresh: Annotated[
        bool | None,
        typer.Option(
            "--new/--continue",
            help="Start a new conversation, or continue the last one. Defaults to continuing at a "
            "terminal, and to a new one from a pipe.",
            show_default=False,
        ),
    ] = None,
    past: Annotated[int, typer.Option("-n", min=0, max=200, help="Number of earlier messages to show.")] = 10,
) -> None:
    """Talk to a repository's agent here; its channel shows the conversation too.

    At a terminal: Ctrl-C stops the run, or exits if there is none; Ctrl-D exits. A line that ends in a
    backslash, or an open ``` fence, continues on the next. Answer prompts by number or text.

    From a pipe: all of standard input is one message; its answer is printed, and the exit code is that of the run.
    """
    home_dir, entry = home(), repository(repo)
    if sys.stdin.isatty():
        from codebutler.cli.chatroom.conversation import converse

        converse(home_dir, entry.name, fresh=bool(fresh), past=past)
    else:
        _answer_stdin(home_dir, entry.name, fresh=fresh is not False)


def _answer_stdin(home_dir: Home, repo: str, *, fresh: bool) -> None:
    from codebutler.cli.chatroom.conversation import read_history, write_history

    text = sys.stdin.read()
    if not text.strip():
        raise typer.BadParameter("standard input is empty")
    history = read_history(home_dir)
    answer = ask_once(repo, text.strip("\n"), None if fresh else history.threads.get(repo))
    if answer.thread:
        write_history(home_dir, history.with_thread(repo, answer.thread))
    _print_answer(answer)


def _print_answer(answer: WholeAnswer) -> None:
    """Print the answer; exit code 1 if the run failed."""
    answer.show()
    if not answer.ok:
        raise typer.Exit(EXIT_FAILED)


class WholeAnswer(Struct):
    """The answer so far. ``texts`` by message: an edit replaces its message."""

    thread: MessageRef = NOWHERE
    outcome: str = "done"
    texts: dict[str, str] = field(default_factory=dict)

    def show(self) -> None:
        """The answer, its messages in order of their start; without its figures and a program's exit line."""
        for text in self.texts.values():
            answer, details = split_answer(text)
            if answer.strip():
                for line in answer.split("\n"):
                    print_line(line)
            for line in details.split("\n") if details.strip() else ():
                notice(line)
        if not self.ok:
            print_error(OUTCOME_TEXTS.get(self.outcome, "the run failed"))

    @property
    def ok(self) -> bool:
        """Whether the run was done; otherwise it failed, was stopped, refused or interrupted."""
        return self.outcome == "done"

    def add(self, reply: ControlReply) -> None:
        """Collect a reply; report at once what waits for a decision."""
        match reply:
            case Posted(thread=thread):
                self.thread = thread
            case Said(kind="card", choices=choices, text=text) if choices:
                notice(NEEDS_DECISION)
                for line in printable_lines(text).split("\n"):
                    notice(line)
            case Said(kind="text", ref=ref, text=text):
                self.texts[ref] = text


def ask_once(repo: str, text: str, thread: MessageRef | None = None) -> WholeAnswer:
    """Send ``text`` and wait for its outcome. Raises CodeButlerError."""
    answer = WholeAnswer()
    result = send_request(SendRequest(repo=repo, text=text, wait=True, thread=thread), answer.add)
    answer.outcome = result.text
    return answer


def send(
    repo: Annotated[str, typer.Argument(help="A repository's name.", autocompletion=known_repositories)],
    text: Annotated[
        str, typer.Argument(help="The message; `-` reads standard input.", autocompletion=known_commands)
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Print the answer; fail if the run fails.")] = False,
) -> None:
    """Post a message in a repository's channel as the operator; it is answered like any other message."""
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise typer.BadParameter("nothing to send: the text is empty", param_hint="TEXT")
    if not wait:
        send_request(SendRequest(repo=repo, text=message))
        return
    _print_answer(ask_once(repo, message))


def stop(
    repo: Annotated[
        str, typer.Argument(help="A repository's name, or `all`.", autocompletion=known_repositories)
    ],
) -> None:
    """Stop a repository's running work and cancel what is queued; the supervisor keeps running."""
    typer.echo(send_request(StopRequest(repo=repo)).text)


def adopt(
    session: Annotated[
        str,
        typer.Argument(help="A session ID or its first characters. If omitted, lists the sessions and asks."),
    ] = "",
    repo: Annotated[
        str,
        typer.Option(
            help="A repository's name; defaults to this directory's.", autocompletion=known_repositories
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON; adopt nothing.")] = False,
) -> None:
    """Continue a Claude Code or Kimi Code session, started in a terminal in this repository, in a thread of
    its channel.

    Without an ID, list the sessions, newest first, and ask which one.
    """
    entry = repository(repo) if repo else _current_repository()
    directory = Path(entry.path)
    if session and not as_json:
        _adopt(entry, find_session(Path.home(), directory, session))
        return
    found = terminal_sessions(Path.home(), directory)[:MAX_LISTED]
    if as_json:
        print_json(
            [
                {"id": e.id, "agent": e.agent, "changed": e.changed_s, "first_words": _first_words(e)}
                for e in found
            ]
        )
    elif not found:
        print_line(NO_SESSIONS.format(path=directory))
    else:
        now_s = time.time()
        rows = [
            (str(number), each.agent, age(now_s - each.changed_s), _first_words(each), each.id)
            for number, each in enumerate(found, start=1)
        ]
        print_table(("", "AGENT", "AGE", "FIRST WORDS", "SESSION"), rows)
        if is_interactive():
            _choose_session(entry, found)
        else:
            print_line("To continue one in the channel, run `codebutler adopt SESSION`.")


def _current_repository() -> RepoEntry:
    """The registered repository that this directory is in. Raises CodeButlerError."""
    root = repo_root(Path())
    for entry in Registry(home()).load():
        if Path(entry.path) == root:
            return entry
    raise RegistryError(NOT_REGISTERED.format(path=root))


def _first_words(session: PastSession) -> str:
    line = " ".join(session.prompts[0].split())
    return line if len(line) <= WORDS_CHARS else f"{line[: WORDS_CHARS - 1]}…"


def _choose_session(entry: RepoEntry, found: Sequence[PastSession]) -> None:
    from codebutler.cli.prompts import ask

    answer = ask("Which one? (a number; Enter for none)")
    if not answer:
        return
    if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
        raise typer.BadParameter(f"pass a number from 1 to {len(found)}")
    _adopt(entry, found[int(answer) - 1])


def _adopt(entry: RepoEntry, session: PastSession) -> None:
    """Send the command in the channel, as the operator, and show the answer."""
    _print_answer(ask_once(entry.name, f"!continue {session.id}"))
