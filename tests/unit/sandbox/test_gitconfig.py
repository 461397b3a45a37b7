"""Git's configuration as git reads it, and what of it git starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler_worker.sandbox.gitconfig import MalformedConfigError, kind_of, settings, words
from tests.programs import require

FILES = (
    '[core]\n\thooksPath = .husky\n\tbare = false\n[user]\n name = A  B # c\n email="x; y" ; z\n',
    '[filter "a\\"b\\\\c.D"] clean = "tools/x \\"%f\\"" tail  \n\tsmudge=cat\\\n more\n',
    '\ufeff[Include]\r\n\tPath = a\\tb\r\n[includeIf "gitdir:~/x/"]path="../y"\n',
    '[alias]\n l = !f() { git log "$1"; }; f\n[a.b] c = d\n[a]\nflag\nx-1=\n\n# end\n;',
    '[remote "origin"]\n\turl = git@github.com:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
    '[core]\n pager = "less" -R\n editor = vi\\\n\n[x]\n y = \\"q\\" "#" # c\n z = a  b   c\n',
    "[core] hooksPath = x [user]\n[core]fsmonitor=./a",
    "[a]\nb = c\\",
    "",
)


@pytest.mark.parametrize("text", FILES)
def test_it_is_read_as_git_reads_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(text.encode())
    git = require("git")
    listed = subprocess.run(
        [git, "config", "--file", str(file), "--no-includes", "-z", "--list"],
        capture_output=True,
        cwd=tmp_path,
    )
    assert listed.returncode == 0, listed.stderr
    entries = [entry.partition("\n") for entry in listed.stdout.decode().split("\0") if "\n" in entry]
    assert [*settings(text)] == [(key, value) for key, _, value in entries]


@pytest.mark.parametrize(
    "text",
    ["[core\n", '[core]\na = "b', "[core]\na = \\q", "[core]\n= x", "[core]\n1 = x", "[core]\na.b = c"],
)
def test_what_git_refuses_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    assert subprocess.run(
        [require("git"), "config", "--file", str(file), "--list"], capture_output=True, cwd=tmp_path
    ).returncode
    with pytest.raises(MalformedConfigError):
        [*settings(text)]


@pytest.mark.parametrize(
    ("key", "value", "starts"),
    [
        *((f"core.{name}", "x", True) for name in ("fsmonitor", "pager", "editor", "askpass")),
        *((f"core.{name}", "x", True) for name in ("sshcommand", "gitproxy")),
        *((f"filter.a.b.{name}", "x", True) for name in ("clean", "smudge", "process")),
        *((f"diff.a.{name}", "x", True) for name in ("command", "textconv")),
        *((key, "x", True) for key in ("diff.external", "merge.m.driver", "mergetool.x.cmd", "difftool.x.path")),
        *((key, "x", True) for key in ("gpg.program", "gpg.ssh.program", "gpg.ssh.defaultkeycommand", "pager.log")),
        *((key, "x", True) for key in ("credential.helper", "credential.https://h/.helper", "sequence.editor")),
        *((key, "x", True) for key in ("remote.o.uploadpack", "remote.o.receivepack")),
        *((key, "x", True) for key in ("trailer.a.cmd", "hook.a.command")),
        *((key, "x", True) for key in ("interactive.difffilter", "uploadpack.packobjectshook")),
        *(("alias.x", "!./y", True), ("alias.x", "log -- y", False), ("submodule.s.update", "!./y", True)),
        *((key, "x/y", False) for key in ("remote.o.url", "branch.a/b.merge", "user.name", "core.excludesfile")),
        *((key, "x/y", False) for key in ("commit.template", "blame.ignorerevsfile", "core.hookspath")),
    ],
)  # fmt: skip
def test_what_git_starts(key: str, value: str, starts: bool) -> None:
    assert (kind_of(key, value) == "program") is starts


def test_what_is_more_configuration() -> None:
    keys = (
        "include.path",
        "includeif.gitdir:~/x/.path",
        "includeif.onbranch:a.path",
        "includes.path",
        "core.path",
    )
    assert [kind_of(key, "x") == "include" for key in keys] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("tools/clean %f", [("tools/clean", True), ("%f", False)]),
        ("!cd x && ./go; 'a b'/c", [("cd", True), ("x", False), ("./go", True), ("a b/c", True)]),
        ("it's", [("it's", True)]),
        ("A=b/c d/e > f/g", [("b/c", False), ("d/e", True), ("f/g", False)]),
        ("!f() { ./x; }; f", [("f", True), ("./x", True), ("}", True), ("f", True)]),
        (
            "python -u x.py # y",
            [("python", True), ("-u", False), ("x.py", False), ("#", False), ("y", False)],
        ),
    ],
)
def test_the_words_of_a_command(value: str, found: list[tuple[str, bool]]) -> None:
    assert [*words(value)] == found
