"""The native agent's tools, with real programs behind real walls and without walls."""

from __future__ import annotations

import codecs
import json
import stat
from pathlib import Path

import pytest

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tools.editing import EDIT_FILE, WRITE_FILE
from codebutler_worker.tools.reading import CODE_SEARCH, LIST_FILES, READ_FILES, read_text
from codebutler_worker.tools.running import bash
from codebutler_worker.tools.talking import SEND_FILE
from codebutler_worker.tools.tool import Context, SendFile
from tests.integration.tools.conftest import call


def words(**arguments: object) -> str:
    return json.dumps(arguments)


async def test_files_are_read_to_the_letter(context: Context) -> None:
    for name, content in (
        ("a", "one\n"),
        ("b", "no newline"),
        ("c", ""),
        ("d", "x\r\n\r\n."),
        ("e", "ü\u2028y\n\n"),
    ):
        (context.workdir / name).write_bytes(content.encode())
        assert (await read_text(context, name, 100)).text == content


async def test_of_several_files_those_that_can_be_read_are_read(context: Context) -> None:
    (context.workdir / "blob").write_bytes(b"a\0b")
    (context.workdir / "link").symlink_to("/etc/passwd")
    result = await call(READ_FILES, context, words(paths=["README.md", "link", "blob", "src"]))
    assert result.ok
    assert "=== README.md\n1\t# Sample" in result.text
    assert "link: goes through a symbolic link\nblob: not a text file\nsrc: is a directory" in result.text
    assert not (await call(READ_FILES, context, words(paths=["missing"]))).ok


async def test_files_are_listed_without_what_git_ignores(context: Context) -> None:
    (context.workdir / ".gitignore").write_text("build/\n")
    (context.workdir / "build").mkdir()
    (context.workdir / "build" / "out").write_text("x")
    (context.workdir / "new ü.txt").write_text("x")
    result = await call(LIST_FILES, context, "{}")
    assert result.text.split("\n") == [".gitignore", "README.md", "new ü.txt", "src/app.py"]
    assert (await call(LIST_FILES, context, words(path="src"))).text == "src/app.py"
    assert not (await call(LIST_FILES, context, words(path=".."))).ok
    cut = await call(LIST_FILES, context, words(most=1))
    assert cut.truncated
    assert "3 more files" in cut.text


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "greet("}, "src/app.py:1:def greet(name):"),
        ({"pattern": "gr[e]+t", "regex": True, "path": "src"}, "src/app.py:1:def greet(name):"),
        ({"pattern": "GREET", "any_case": True, "path": "src/app.py"}, "src/app.py:1:def greet(name):"),
        ({"pattern": "hello", "glob": "*.py"}, 'src/app.py:2:    return f"hello {name}"'),
        ({"pattern": "hello", "glob": "*.md"}, "(nothing found)"),
        ({"pattern": "hello", "glob": "*.py", "path": "src"}, 'src/app.py:2:    return f"hello {name}"'),
        ({"pattern": "GREET"}, "(nothing found)"),
        ({"pattern": "-e; touch bad"}, "(nothing found)"),
    ],
)
async def test_lines_are_found(context: Context, arguments: dict[str, object], found: str) -> None:
    assert (await call(CODE_SEARCH, context, words(**arguments))).text == found
    assert not (context.workdir / "bad").exists()


async def test_a_search_leaves_out_what_git_ignores_and_finds_what_is_new(context: Context) -> None:
    (context.workdir / ".gitignore").write_text("*.log\n")
    (context.workdir / "a.log").write_text("needle\n")
    (context.workdir / "b.txt").write_text("needle\n")
    assert (await call(CODE_SEARCH, context, words(pattern="needle"))).text == "b.txt:1:needle"


async def test_a_bad_expression_is_said(context: Context) -> None:
    result = await call(CODE_SEARCH, context, words(pattern="a(", regex=True))
    assert not result.ok
    assert "\n" not in result.text


async def test_a_file_is_written_whole_and_in_place(context: Context) -> None:
    script = context.workdir / "run.sh"
    script.write_text("old\n")
    script.chmod(0o755)
    content = "new\n'\"$HOME\0ü" + "x" * 100_000
    result = await call(WRITE_FILE, context, words(path="run.sh", content=content))
    assert result.ok, result.text
    assert script.read_text() == content
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    for path, text in (("deep/new/file.txt", "no newline"), ("empty", "")):
        assert (await call(WRITE_FILE, context, words(path=path, content=text))).ok
        assert (context.workdir / path).read_text() == text
    assert sorted(path.name for path in context.workdir.iterdir()) == sorted(
        [".codebutler", ".git", "README.md", "deep", "empty", "run.sh", "src"]
        if (context.workdir / ".codebutler").exists()
        else [".git", "README.md", "deep", "empty", "run.sh", "src"]
    )


async def test_an_edit_is_exact_and_shows_what_it_did(context: Context) -> None:
    result = await call(EDIT_FILE, context, words(path="src/app.py", old="hello", new="good day"))
    assert result.ok
    assert '-    return f"hello {name}"\n+    return f"good day {name}"' in result.text
    assert (
        context.workdir / "src" / "app.py"
    ).read_text() == 'def greet(name):\n    return f"good day {name}"\n'


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"path": "src/app.py", "old": "nothing", "new": "x"}, "not in the file"),
        ({"path": "src/app.py", "old": "name", "new": "x"}, "2 times, in lines 1, 2"),
        ({"path": "src/app.py", "old": "return f'hi {name}'", "new": "x"}, '2\t    return f"hello {name}"'),
        ({"path": "src/app.py", "old": "hello", "new": "hello"}, "the same"),
        ({"path": "missing", "old": "a", "new": "b"}, "no such file"),
        ({"path": ".git/config", "old": "core", "new": "b"}, "git's own files"),
    ],
)
async def test_an_edit_that_is_not_exact_changes_nothing(
    context: Context, arguments: dict[str, object], why: str
) -> None:
    before = (context.workdir / "src" / "app.py").read_bytes()
    result = await call(EDIT_FILE, context, words(**arguments))
    assert not result.ok
    assert why in result.text
    assert (context.workdir / "src" / "app.py").read_bytes() == before


async def test_line_ends_of_the_file_are_kept(context: Context) -> None:
    file = context.workdir / "dos.txt"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert (await call(EDIT_FILE, context, words(path="dos.txt", old="one\ntwo", new="1\n2"))).ok
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("latin-1", b""),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
    ],
)
async def test_a_file_stays_in_its_encoding(context: Context, encoding: str, mark: bytes) -> None:
    def content(word: str) -> bytes:
        return mark + f"Grüße\r\n{word}\r\n".encode(encoding)

    file = context.workdir / "greeting.txt"
    file.write_bytes(content("façade"))
    shown = await call(READ_FILES, context, words(paths=["greeting.txt"]))
    assert f"=== greeting.txt ({encoding}" in shown.text
    assert "1\tGrüße\n2\tfaçade" in shown.text
    assert (
        await call(EDIT_FILE, context, words(path="greeting.txt", old="Grüße\nfaçade", new="Grüße\nhôtel"))
    ).ok
    assert file.read_bytes() == content("hôtel")
    assert (await call(WRITE_FILE, context, words(path="greeting.txt", content="Grüße\nété\n"))).ok
    assert file.read_bytes() == content("été")
    if encoding == "latin-1":
        refused = await call(EDIT_FILE, context, words(path="greeting.txt", old="été", new="→"))
        assert refused.text == (
            "the file is latin-1, which has no '→': do without it, or convert the file first"
        )
        assert file.read_bytes() == content("été")
        assert (await call(WRITE_FILE, context, words(path="greeting.txt", content="→"))).ok
        assert file.read_bytes() == "→".encode()


async def test_an_edit_finds_its_place_though_it_was_not_copied_to_the_letter(context: Context) -> None:
    file = context.workdir / "deep.py"
    file.write_bytes(b"class A:\r\n\tdef f(self):  \r\n\t\treturn 'x'\r\n\r\n# end\r\n")
    result = await call(
        EDIT_FILE,
        context,
        words(
            path="deep.py",
            old="def f(self):\n    return ’x’\n",
            new="def f(self):\n    if self:\n        return ’y’\n    return ’x’\n",
        ),
    )
    assert result.ok, result.text
    assert "found without regard to typographic characters and indentation" in result.text
    assert file.read_bytes() == (
        b"class A:\r\n\tdef f(self):  \r\n\t\tif self:\r\n\t\t\treturn 'y'\r\n\t\treturn 'x'\r\n\r\n# end\r\n"
    )


async def test_what_is_left_out_of_a_long_line_is_said(context: Context) -> None:
    (context.workdir / "long.txt").write_text("needle" + "x" * 5000 + "\n")
    read = await call(READ_FILES, context, words(paths=["long.txt"]))
    assert (read.truncated, read.text.endswith("xxx [… 3006 more characters]")) == (True, True)
    found = await call(CODE_SEARCH, context, words(pattern="needle"))
    assert (found.truncated, found.text.endswith("xxx [… 4717 more characters]")) == (True, True)


async def test_nothing_is_written_through_a_link(context: Context, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (context.workdir / "link").symlink_to(outside)
    assert not (await call(WRITE_FILE, context, words(path="link", content="theirs"))).ok
    assert not (await call(EDIT_FILE, context, words(path="link", old="mine", new="x"))).ok
    assert not (await call(READ_FILES, context, words(paths=["link"]))).ok
    assert not (await call(SEND_FILE, context, words(path="link"))).ok
    assert outside.read_text() == "mine"


async def test_a_file_is_sent_by_its_name(context: Context) -> None:
    assert (await call(SEND_FILE, context, words(path="README.md"))).effect == SendFile("README.md")
    for path in ("src", "missing", "a\nb", ".codebutler/store.db", "x<<<END_SLACK>>>"):
        assert not (await call(SEND_FILE, context, words(path=path))).ok


async def test_the_strict_bash_runs_one_program_of_its_list(context: Context) -> None:
    strict = bash(("cat", "env", "sleep", "false"))
    result = await call(strict, context, words(command="cat README.md 'no such $HOME'"))
    assert result.text.startswith("# Sample")
    assert (result.argv, result.exit_code) == (("cat", "README.md", "no such $HOME"), 1)
    assert (await call(strict, context, words(command="false"))).text == "(exit code 1)"
    late = await call(strict, context, words(command="sleep 60", limit_s=1))
    assert (late.exit_code, "stopped after 1 s" in late.text) == (124, True)


REFUSED = """rm -rf .|./cat x|/bin/cat x|cat a && cat b|cat a>b|cat 'a|cat a;cat|cat a\ncat b|(cat)"""


@pytest.mark.parametrize("command", [*REFUSED.split("|"), "cat a | cat"])
async def test_the_strict_bash_refuses_what_is_not_on_its_list_or_needs_a_shell(
    context: Context, command: str
) -> None:
    result = await call(bash(("cat",)), context, words(command=command))
    assert not result.ok
    assert not (context.workdir / "b").exists()


async def test_no_key_and_no_network_reach_a_tool(context: Context, sandbox: Sandbox) -> None:
    result = await call(bash(("env",)), context, words(command="env"))
    assert "PATH=" in result.text
    assert "sk-not-for-tools" not in result.text
    if sandbox.name == "bwrap":
        interfaces = await call(bash(("cat",)), context, words(command="cat /proc/net/dev"))
        assert interfaces.text.count(":") <= 2
