"""Whatever program does the looking, the model is told the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.reading import CODE_SEARCH, LIST_FILES
from codebutler_worker.tools.tool import Context
from tests.integration.tools.conftest import call
from tests.programs import require
from tests.walls import as_it_is

WITHOUT = {"ripgrep": (), "git": ("rg",), "grep": ("rg", "git")}


@pytest.fixture
def sandbox() -> Sandbox:
    return as_it_is()


@pytest.fixture(params=WITHOUT)
def looking(request: pytest.FixtureRequest, context: Context, tmp_path: Path) -> Context:
    """Where only one of the programs is there."""
    if request.param == "ripgrep":
        require("rg")
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for program in Path(directory).iterdir():
            if program.name not in WITHOUT[request.param] and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    policy = tool_policy(context.workdir, tmp_path, str(programs), {}, "C1:1.0")
    return replace(context, programs=SandboxPrograms(as_it_is(), policy))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "greet("}, "src/app.py:1:def greet(name):"),
        ({"pattern": "gr[e]+t", "regex": True, "path": "src"}, "src/app.py:1:def greet(name):"),
        ({"pattern": "GREET", "any_case": True, "path": "src/app.py"}, "src/app.py:1:def greet(name):"),
        ({"pattern": "hello", "glob": "*.py"}, 'src/app.py:2:    return f"hello {name}"'),
        ({"pattern": "hello", "glob": "*.md"}, "(nothing found)"),
        ({"pattern": "hello", "glob": "*.py", "path": "src"}, 'src/app.py:2:    return f"hello {name}"'),
        ({"pattern": "a sample", "any_case": True}, "README.md:3:A sample repository."),
        ({"pattern": "--version"}, "(nothing found)"),
    ],
)
async def test_the_same_lines_are_found(looking: Context, arguments: dict[str, object], found: str) -> None:
    for hidden in (".codebutler", ".git"):
        (looking.workdir / hidden).mkdir(exist_ok=True)
        (looking.workdir / hidden / "kept.py").write_text("greet( hello")
    assert (await call(CODE_SEARCH, looking, json.dumps(arguments))).text == found


async def test_the_same_files_are_listed_and_the_same_expression_is_refused(looking: Context) -> None:
    (looking.workdir / ".codebutler").mkdir()
    (looking.workdir / ".codebutler" / "kept").write_text("x")
    (looking.workdir / ".codebutler" / ".gitignore").write_text("*")
    (looking.workdir / ".github").mkdir()
    (looking.workdir / ".github" / "ü.yml").write_text("x")
    listed = await call(LIST_FILES, looking, "{}")
    assert listed.text.split("\n") == [".github/ü.yml", "README.md", "src/app.py"]
    refused = await call(CODE_SEARCH, looking, json.dumps({"pattern": "a(", "regex": True}))
    assert not refused.ok


async def test_what_cannot_be_read_does_not_cost_what_is_found(looking: Context) -> None:
    (looking.workdir / "data").mkdir(mode=0o000)
    (looking.workdir / "closed.py").touch(mode=0o000)
    for pattern, found in (("greet(", "src/app.py:1:def greet(name):"), ("nowhere", "(nothing found)")):
        searched = await call(CODE_SEARCH, looking, json.dumps({"pattern": pattern}))
        assert (searched.ok, searched.text) == (True, found)
    refused = await call(CODE_SEARCH, looking, json.dumps({"pattern": "x", "path": "closed.py"}))
    assert not refused.ok
    (looking.workdir / "data").chmod(0o755)
