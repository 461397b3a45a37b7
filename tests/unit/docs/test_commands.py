"""Every command, word, key, default and example of the documentation is one that this version takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codebutler.cli.logs import parse_line
from codebutler.cluster.membership import ClusterMembership
from codebutler.config.load import check_layer, leaves
from codebutler.config.schema import Config
from codebutler.config.skills import parse_skill
from codebutler.domain.commands import word_of
from codebutler.protocol.capabilities import AgentResult
from codebutler.protocol.messages import Finding
from codebutler.schedule.jobs import FileContents, JobPlace, parse_file
from codebutler.workspace.manifest import offers_of
from tests.unit.docs.pages import PAGES, ROOT, Block, blocks, fault, options, readings, spans

BLOCKS = [block for page in PAGES for block in blocks(page)]
# The system's own programs that a page may tell people to run.
SYSTEM = {
    "cat",
    "cd",
    "chmod",
    "cp",
    "debootstrap",
    "export",
    "git",
    "mkdir",
    "mv",
    "nats-server",
    "pipx",
    "rm",
    "tar",
}
# What is code and no command: pictures of something, held by the named tests.
PICTURES = {
    "docs/reference/chat.md": "the figures below an answer, held by tests/unit/present/test_answer.py",
    "docs/reference/doctor.md": "a table, held by tests/integration/trials/test_rows.py",
    "docs/how-to/see-what-changed.md": "a card, held by tests/unit/changes/test_card.py",
    "docs/explanation/delivery.md": "arrows between processes",
    "docs/how-to/run-in-a-container.md": "commands of docker; tests/e2e/test_image.py builds and runs the image",
    "docs/how-to/use-docker.md": "flags, held by tests/unit/sandbox/test_docker_argv.py",
}
HOOK_ENV = {"CI_HOOK_SECRET": "s" * 16}
KEYS = {".".join(path) for path, _ in leaves(msgspec.to_builtins(Config()))} | {
    "native.prices",
    "approvals.quorum",
    "claude.mcp",
}
SECTIONS = {key.partition(".")[0] for key in KEYS}
ids = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@ids
def test_every_block_says_what_it_is_and_is_that(block: Block) -> None:
    check = CHECKS.get(block.language)
    assert check is not None, f"{block.name}: name its language: {', '.join(sorted(filter(None, CHECKS)))}"
    check(block)


def _console(block: Block) -> None:
    assert block.commands
    for line in block.commands:
        for command in re.split(r"\s*(?:&&|;|\|)\s*", line.strip("()")):
            program, *_ = command.split()
            if program == "codebutler":
                _ours(command, whole=True)
            elif program == "make":
                _target(command)
            else:
                assert program in {*SYSTEM, "echo"}, f"{block.name}: {program}"


def _drawn(block: Block) -> None:
    """`make docs` draws it, and whether it is as drawn is tested with what else is written so."""
    assert block.text.startswith(("graph ", "sequenceDiagram\n"))


def _ours(command: str, *, whole: bool) -> None:
    for words in readings(command):
        assert fault(words[1:], whole=whole) == "", command


def _target(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    target = command.split()[1]
    assert re.search(rf"^{target}:", makefile, re.MULTILINE), command


def _json(block: Block) -> None:
    given = json.loads(block.text)
    if "features" in given:
        assert offers_of(block.text)
    elif "servers" in given:
        msgspec.convert(given, ClusterMembership)
    elif "findings" in given:
        assert given.keys() == {"ok", "counts", "findings", "agents"}
        assert msgspec.convert(given["findings"], list[Finding])
        [row] = msgspec.convert(given["agents"], list[AgentResult])
        assert json.loads(msgspec.json.encode(row)) == given["agents"][0]
    else:
        check_layer(given, block.name)


def _yaml(block: Block) -> None:
    place = JobPlace("shop", "C0SHOP000")
    assert parse_file(block.text.encode(), block.name, lambda *_: place, HOOK_ENV) != FileContents()


def _markdown(block: Block) -> None:
    assert parse_skill(block.text.encode(), "deploy", "home").instructions


def _python(block: Block) -> None:
    compile(block.text, block.name, "exec")


def _log(block: Block) -> None:
    assert [line for line in block.text.splitlines() if parse_line(line)["tag"] is None] == []


def _picture(block: Block) -> None:
    assert str(block.page.relative_to(ROOT)) in PICTURES, f"{block.name}: name its language"


CHECKS = {
    "console": _console,
    "json": _json,
    "yaml": _yaml,
    "markdown": _markdown,
    "python": _python,
    "log": _log,
    "mermaid": _drawn,
    "": _picture,
}


@pages
def test_every_command_that_is_spoken_of_exists(page: Path) -> None:
    for span in spans(page):
        if re.match(r"codebutler [\w-]", span):
            _ours(span.partition(" | ")[0], whole=False)
        elif re.match(r"make [a-z]", span) and " " not in span[5:]:
            _target(span)


def test_every_option_that_is_listed_is_one_of_its_command() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    rows = re.findall(r"^\| `codebutler ([\w-]+)[^|]*(.*)\|$", page, re.MULTILINE)
    assert len(rows) > 25
    for name, row in rows:
        row = re.sub(r"`codebutler [^`]*`", "", row)
        assert sorted(set(re.findall(r"(?<=[` ])--?[a-z][\w-]*", row)) - options(name)) == [], name


# Said in a sentence of a page; the product says it in these words.
SAID = {
    "docs/how-to/open-the-network.md": "is not in sandbox.hosts (CodeButler)",
    "docs/reference/jobs.md": ": starting…",
    "docs/how-to/run-programs.md": "(incomplete)",
    "docs/explanation/delivery.md": "Back after ",
}


@pytest.mark.parametrize(("page", "words"), SAID.items(), ids=lambda text: text)
def test_what_a_sentence_quotes_is_said(page: str, words: str) -> None:
    sources = [*ROOT.glob("codebutler/**/*.py"), *ROOT.glob("workers/**/*.py")]
    assert words in (ROOT / page).read_text()
    assert any(words in source.read_text() for source in sources)


@pages
def test_every_word_that_is_spoken_of_exists_and_takes_what_follows(page: Path) -> None:
    for span in spans(page):
        found = re.fullmatch(r"(?:!|/butler |/(?=agent|claude|kimi))([a-z][\w-]*)(?: (.*))?", span)
        if found is None or found[1] in ("word", "words"):
            continue
        word = word_of(found[1])
        assert word is not None, span
        argument = found[2] or ""
        assert not argument or argument == word.usage or any(map(word.takes, _arguments(argument))), span


def _arguments(text: str) -> list[str]:
    """What an argument may be that a page writes with what stands for it."""
    numbered = text.replace("N", "3")
    return [text, f"{text} 3", numbered, numbered.replace("ID", "abc-1")]


@pages
def test_every_key_that_is_spoken_of_exists(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"[a-z]+(\.[a-z][A-Za-z]*)+", span) and span.partition(".")[0] in SECTIONS:
            assert span in KEYS or any(key.startswith(f"{span}.") for key in KEYS) or _is_file(span), span


def _is_file(span: str) -> bool:
    return span.rpartition(".")[2] in ("key", "py", "md", "json", "db", "yaml", "log")


def test_every_default_is_the_one_that_holds() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    defaults = dict(leaves(msgspec.to_builtins(Config())))
    told: dict[str, str] = {}
    for keys, shown in re.findall(r"^\| ((?:`[\w.]+` ?)+) \| ([^|]*?) \|", page, re.MULTILINE):
        values = [value.strip() for value in shown.split(",")]
        named = re.findall(r"`([\w.]+)`", keys)
        # One value for each key, as code; all else is said in words.
        if len(named) == len(values):
            told |= {
                key: value.strip("`") for key, value in zip(named, values, strict=True) if value[0] == "`"
            }
    real = {key: _shown(defaults.get(tuple(key.split(".")), {})) for key in told}
    assert len(told) > 40
    assert {key: value for key, value in told.items() if value != real[key]} == {}


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode().strip('"').removesuffix(".0")
