"""What lists and searches where ripgrep is, where only git is, and where neither is: the same answer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.reading import CODE_SEARCH, LIST_FILES
from codebutler_worker.tools.tool import Context
from tests.integration.tools.conftest import call
from tests.integration.tools.test_tools import words
from tests.programs import require

COMMON = ("sh", "cat", "mktemp", "rm", "grep", "find")
ENGINES = {"rg": ("rg",), "git": ("git",), "neither": ()}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def equipped(engine: str, context: Context, sandbox: Sandbox, tmp_path: Path) -> Context:
    """A context whose programs are on a PATH of their own, in a repository with files of every kind."""
    repo = context.workdir
    programs = repo / ".programs"
    programs.mkdir()
    for name in (*COMMON, *ENGINES[engine]):
        (programs / name).symlink_to(require(name) if name == "rg" else str(shutil.which(name)))
    (repo / ".git" / "info" / "exclude").write_text(".programs\n")
    (repo / ".gitignore").write_text("*.log\nnode_modules/\n")
    for path in (
        "b.txt",
        "a.log",
        "node_modules/x.txt",
        ".codebutler/secret.txt",
        ".hidden/c.txt",
        "sub/d.txt",
    ):
        file = repo / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("a Needle here\n")
    subprocess.run(["git", "add", "sub"], cwd=repo, check=True)
    policy = tool_policy(repo, tmp_path / "home", str(programs), {}, "C1:1.0")
    return replace(context, programs=SandboxPrograms(sandbox, policy))


async def test_the_same_lines_are_found(engine: str, equipped: Context) -> None:
    found = (await call(CODE_SEARCH, equipped, words(pattern="Needle"))).text.split("\n")
    # Without git nobody knows what it ignores, but for what is never worth a look.
    ignored = ["a.log:1:a Needle here"] if engine == "neither" else []
    expected = [
        ".hidden/c.txt:1:a Needle here",
        *ignored,
        "b.txt:1:a Needle here",
        "sub/d.txt:1:a Needle here",
    ]
    assert sorted(found) == sorted(expected)
    for arguments in (
        {"pattern": "needle", "any_case": True, "path": "sub"},
        {"pattern": "Need.e", "regex": True, "path": "sub/d.txt"},
        {"pattern": "Needle", "glob": "d.*"},
    ):
        text = (await call(CODE_SEARCH, equipped, words(**arguments))).text
        assert text == "sub/d.txt:1:a Needle here", arguments
    assert (await call(CODE_SEARCH, equipped, words(pattern="Need.e"))).text == "(nothing found)"
    bad = await call(CODE_SEARCH, equipped, words(pattern="a(", regex=True))
    assert not bad.ok


async def test_the_same_files_are_listed(engine: str, equipped: Context) -> None:
    found = (await call(LIST_FILES, equipped, "{}")).text.split("\n")
    expected = {".gitignore", ".hidden/c.txt", "README.md", "b.txt", "src/app.py", "sub/d.txt"}
    ignored = {"a.log"} if engine == "neither" else set()
    assert set(found) == expected | ignored
