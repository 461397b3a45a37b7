"""What every sandbox does, with real programs behind it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.sandbox.select import NoSandbox
from tests.containers import execute
from tests.ordinary import give_away
from tests.programs import require

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(params=["none", "bwrap", pytest.param("docker", marks=pytest.mark.root)])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    if request.param == "none":
        yield NoSandbox()
    elif request.param == "bwrap":
        yield BwrapSandbox(program=require("bwrap"))
    else:
        docker = DockerSandbox(host=request.getfixturevalue("docker_host"))
        yield docker
        await docker.close()


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    home = tmp_path / "home"
    (home / ".agent").mkdir(parents=True)
    give_away(home)
    return SandboxPolicy(workdir=git_repo, home=home, home_paths=(home / ".agent",), env=ENV)


async def run(launch: Launch, stdin: bytes = b"") -> tuple[int, str, str]:
    code, out, err = await execute(launch, stdin)
    return code, out.decode(), err.decode()


async def test_the_self_test_passes(sandbox: Sandbox) -> None:
    await sandbox.self_test()


async def test_runs_in_the_working_directory(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    assert await run(sandbox.wrap(("pwd",), policy)) == (0, f"{policy.workdir}\n", "")


async def test_the_environment_is_exactly_what_was_given(
    sandbox: Sandbox, policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-not-for-agents")
    given = {**ENV, "API_KEY": "a b=c\n'd'", "LD_BIND_NOW": "1"}
    asked = SandboxPolicy(workdir=policy.workdir, home=policy.home, env=given)
    code, out, err = await run(sandbox.wrap(("env", "-0"), asked))
    assert (code, err) == (0, "")
    seen = dict(pair.split("=", 1) for pair in out.rstrip("\0").split("\0"))
    assert seen == {**given, "HOME": str(policy.home), "PWD": str(policy.workdir)}


async def test_no_value_of_the_environment_is_an_argument(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    asked = SandboxPolicy(workdir=policy.workdir, home=policy.home, env={**ENV, "API_KEY": "very-secret"})
    assert not any("very-secret" in word for word in sandbox.wrap(("true",), asked).argv)


@pytest.mark.parametrize("code", [0, 1, 42])
async def test_the_exit_code_passes_through(sandbox: Sandbox, policy: SandboxPolicy, code: int) -> None:
    assert (await run(sandbox.wrap(("sh", "-c", f"exit {code}"), policy)))[0] == code


async def test_the_streams_pass_through(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    launch = sandbox.wrap(("sh", "-c", "cat; echo oops >&2"), policy)
    assert await run(launch, b"line one\nline two\n") == (0, "line one\nline two\n", "oops\n")


async def test_arguments_pass_through_unread(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    words = ("--bind", "/", "a b", "$(id)", "*", "", "--")
    _, out, _ = await run(sandbox.wrap(("printf", "<%s>", *words), policy))
    assert out == "".join(f"<{word}>" for word in words)


async def test_the_working_directory_is_writable(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    assert (await run(sandbox.wrap(("sh", "-c", "echo new > made && rm README.md"), policy)))[0] == 0
    assert (policy.workdir / "made").read_text() == "new\n"
    assert (policy.workdir / "made").stat().st_uid == policy.workdir.stat().st_uid
    assert not (policy.workdir / "README.md").exists()


async def test_the_named_paths_of_the_home_are_kept(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    assert (await run(sandbox.wrap(("sh", "-c", "echo s1 > ~/.agent/session"), policy)))[0] == 0
    assert (policy.home / ".agent" / "session").read_text() == "s1\n"


async def test_git_works(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    require("git")
    script = (
        "set -e; echo x > x; git add x; git -c user.name=t -c user.email=t@example.invalid commit -qm x;"
        "git checkout -q -b topic; echo y >> x; git stash -q; git stash pop -q; git gc -q; git log --format=%s"
    )
    code, out, err = await run(sandbox.wrap(("sh", "-c", script), policy))
    assert (code, out) == (0, "x\nStart\n"), err


async def test_a_worktree_works(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    git = str(require("git"))
    tree = policy.workdir / ".codebutler" / "worktrees" / "one"
    code, _, err = await run(
        Launch(
            argv=(git, "-c", "safe.directory=*", "worktree", "add", "-q", str(tree), "-b", "one"),
            env=dict(os.environ),
            cwd=policy.workdir,
        )
    )
    assert code == 0, err
    give_away(policy.workdir)
    asked = SandboxPolicy(workdir=tree, home=policy.home, env=ENV)
    identity = "-c user.name=t -c user.email=t@example.invalid"
    script = f"echo x > x; git add x; git {identity} commit -qm one; git log --format=%s"
    code, out, err = await run(sandbox.wrap(("sh", "-c", script), asked))
    assert (code, out) == (0, "one\nStart\n"), err


async def test_a_program_below_the_home_runs(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    """As `~/.local/bin/claude` is: a link to the program's real place."""
    real = policy.home / ".local" / "share" / "tool" / "1.0"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\necho tool $1\n")
    real.chmod(0o755)
    link = policy.home / ".local" / "bin" / "tool"
    link.parent.mkdir()
    link.symlink_to(real)
    assert await run(sandbox.wrap((str(link), "ran"), policy)) == (0, "tool ran\n", "")


async def test_an_extra_readable_directory_shows(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    library = Path(sys.prefix)
    asked = SandboxPolicy(workdir=policy.workdir, home=policy.home, env=ENV, readable=(library,))
    assert await run(sandbox.wrap(("test", "-e", str(library / "pyvenv.cfg")), asked)) == (0, "", "")


async def test_a_directory_without_git_works(sandbox: Sandbox, policy: SandboxPolicy, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    os.chown(plain, policy.workdir.stat().st_uid, -1)
    asked = SandboxPolicy(workdir=plain, home=policy.home, env=ENV)
    assert (await run(sandbox.wrap(("touch", "made"), asked)))[0] == 0
    assert [path.name for path in plain.iterdir()] == ["made"]
