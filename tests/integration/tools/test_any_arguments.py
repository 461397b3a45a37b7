"""Whatever a model writes as arguments, a tool answers or says no, and touches nothing outside the repository."""

from __future__ import annotations

import asyncio
import json
import string
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.native.backend import tools
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.repair import schema_of
from codebutler_worker.tools.shell import ShellTerminal
from codebutler_worker.tools.tool import Context, Result
from tests.integration.tools.conftest import call
from tests.ordinary import open_the_way
from tests.walls import as_it_is

FILE_TOOLS = ("list_files", "code_search", "read_files", "write_file", "edit_file", "send_file")
WORDS = st.one_of(
    st.text(max_size=20),
    st.text(string.printable, max_size=20),
    st.sampled_from(
        [
            "..",
            "a/../..",
            "/etc/passwd",
            "-rf",
            "link",
            "link/x",
            ".git/config",
            "a\0b",
            "~",
            "$(id)",
            "*",
            "x" * 300,
        ]
    ),
)


@dataclass(frozen=True)
class Place:
    """A repository with a neighbour that is nobody's business."""

    context: Context
    outside: Path


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory).resolve()
        open_the_way(base)
        repo, outside = base / "repo", base / "outside"
        for made in (repo, outside, repo / ".git"):
            made.mkdir()
        (repo / "a").write_text("one\n")
        (repo / ".git" / "config").write_text("[core]\n")
        (outside / "secret").write_text("token-of-the-neighbour")
        (repo / "link").symlink_to(outside)
        policy = tool_policy(repo, base, "/usr/bin:/bin", {}, "C1:1.0")
        terminal = ShellTerminal(as_it_is(), policy, SystemClock())
        programs = SandboxPrograms(as_it_is(), policy)
        yield Place(
            Context(workdir=repo, turn_id="t", conversation="C1:1.0", programs=programs, terminal=terminal),
            outside,
        )


def arguments(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Anything for each of the tool's texts."""
    tool = next(tool for tool in tools(Config()) if tool.name == name)
    known = schema_of(tool.arguments)["properties"]
    given_ = {
        key: st.lists(WORDS, min_size=1, max_size=3) if schema.get("type") == "array" else WORDS
        for key, schema in known.items()
        if schema.get("type") in ("string", "array")
    }
    return st.fixed_dictionaries(given_)


@pytest.mark.parametrize("name", FILE_TOOLS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_tool_answers_or_says_no(place: Place, name: str, data: st.DataObject) -> None:
    tool = next(tool for tool in tools(Config()) if tool.name == name)
    written = json.dumps(data.draw(arguments(name)))
    result = asyncio.run(call(tool, place.context, written))
    assert isinstance(result, Result)
    assert result.text
    assert "token-of-the-neighbour" not in result.text
    assert [path.name for path in place.outside.iterdir()] == ["secret"]
    assert (place.context.workdir / ".git" / "config").read_text() == "[core]\n"
