"""Secrets that a worker was told, or that look like one: no piece of them is in what it wants to be said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import OpenAISection, RepoSettings
from codebutler.domain.model import Upload
from codebutler.protocol.messages import Doing
from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import Finished, Output, Question, Started, Text, ToolResult, ToolUse
from codebutler_worker.agents.shell.screen import TerminalScreen
from codebutler_worker.present.lines import fenced
from codebutler_worker.present.pieces import without_secrets
from codebutler_worker.present.terminal import TerminalPages, shown
from tests.shown import text_of
from tests.unit.text.test_redact_attacks import SECRET, TOKEN, shows
from tests.worker_kit import Parent, settings, worker


def knowing(path: Path, verbosity: str = "quiet") -> RepoSettings:
    made = settings(path, verbosity=verbosity)
    config = msgspec.structs.replace(made.config, openai=OpenAISection(api_key=SECRET))
    return msgspec.structs.replace(made, config=config)


def everything(parent: Parent) -> list[str]:
    """All that people would see, with its escapes undone."""
    said = [
        str(msgspec.to_builtins(operation))
        for operation in parent.operations
        if not isinstance(operation, Upload)
    ]
    files = [operation.content.decode() for operation in parent.operations if isinstance(operation, Upload)]
    doing = [message.text for message in parent.said(Doing)]
    return [text.replace("&amp;", "&") for text in (*said, *files, *doing)]


async def until_done(parent: Parent, ts: str, mark: str = "white_check_mark") -> None:
    await parent.until(lambda: parent.reactions(ts) == [mark], flow=True)


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
@pytest.mark.parametrize("place", [0, 1, 8, 20, 31])
async def test_a_secret_across_the_edge_of_two_messages(tmp_path: Path, secret: str, place: int) -> None:
    """One long line without a space: it is cut where a message is full."""
    limit = 3500
    async with worker(knowing(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.finish("." * (limit - place - 1) + " " + secret + " " + "." * limit)
        await until_done(parent, "100.1")
        assert len([post for post in parent.posts if "..." in text_of(post)]) > 1
        assert not shows(secret, *everything(parent))


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
@pytest.mark.parametrize("verbosity", ["normal", "verbose"])
async def test_a_secret_where_a_tools_line_is_cut(tmp_path: Path, secret: str, verbosity: str) -> None:
    async with worker(knowing(tmp_path, verbosity)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(Started("s"))
        for number, before in enumerate(range(40, 150, 7)):
            summary = "x" * before + " " + secret
            run.does(
                ToolUse(f"t{number}", "Bash", summary),
                ToolResult(f"t{number}", False, f"{'y' * 690} {secret}"),
            )
            await parent.clock.advance(4)
        run.finish()
        await until_done(parent, "100.1")
        assert not shows(secret, *everything(parent))


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
async def test_a_secret_in_the_agents_error(tmp_path: Path, secret: str) -> None:
    async with worker(knowing(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Finished(False, f"{'e' * 480} {secret}", "failed"))
        await until_done(parent, "100.1", "x")
        assert not shows(secret, *everything(parent), *parent.logs("WRN"))


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
async def test_a_secret_in_envelopes_and_questions(tmp_path: Path, secret: str) -> None:
    half = len(secret) // 2
    async with worker(knowing(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.does(
            Started("s"),
            Text(f"<<<SLACK:progress>>> look: {secret[:half]}"),
            Text(f"{secret[half:]} <<<END_SLACK>>>"),
            Text(f"<<<SLACK:file>>> {secret} <<<END_SLACK>>>"),
            Text(f"<<<SLACK:question>>> which? {secret}\n- {secret}\n- other <<<END_SLACK>>>"),
            Question("q", f"or {secret}", (secret, "no")),
        )
        await parent.post_with("or [redacted]")
        await parent.clock.advance(60)
        assert not shows(secret, *everything(parent))


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
def test_a_terminal_that_shows_it_letter_by_letter(secret: str) -> None:
    terminal, pages = TerminalScreen(), TerminalPages(3500, Redactor([SECRET]))
    for byte in f"$ echo {secret}\r\n$ ".encode():
        terminal.feed(bytes([byte]))
        now = terminal.take()
        pages.take(Output(settled=tuple(now.settled), live=tuple(now.live)))
        texts = [shown(page, "s").replace("&amp;", "&") for page in pages.due()]
        assert not shows(secret, *texts)


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
@pytest.mark.parametrize("colour", ["\x1b[01;31m{}\x1b[m\x1b[K", "\x1b[7m{}\x1b[27m"])
def test_a_log_in_which_a_part_of_it_is_coloured(secret: str, colour: str) -> None:
    line = f"\x1b[35mkeep\x1b[0m\r\nconfig: {colour.format(secret[:4])}{secret[4:]}\r\nkeep\r\n"
    text = line.encode().decode("latin-1")
    sent = without_secrets(text, Redactor([SECRET]))
    assert "[redacted]" in sent
    assert sent.startswith("\x1b[35mkeep\x1b[0m\r\n")
    assert sent.endswith("keep\r\n")
    assert not shows(secret.encode().decode("latin-1"), sent)


async def test_words_that_hide_nothing_come_through(tmp_path: Path) -> None:
    async with worker(knowing(tmp_path)) as parent:
        parent.says("go", "100.1")
        run = await parent.run(0)
        run.finish("All is well: `npm_config_cache` is set, see sk-learn…")
        post = await parent.post_with("All is well")
        assert "`npm_config_cache` is set, see sk-learn…" in text_of(post)


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
def test_a_secret_where_a_block_of_code_is_cut(secret: str) -> None:
    redactor = Redactor([SECRET])
    for place in range(8, len(secret)):
        shown_block, hidden = fenced("x" * (1000 - place - 1) + " " + secret + "y" * 50, 1000)
        assert hidden
        assert not shows(secret, redactor.redact(shown_block).replace("&amp;", "&")), place
