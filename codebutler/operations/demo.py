"""The demo: an embedded workspace, a throw-away home, a sample repository, and a real supervisor over them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from codebutler.config.git_repo import Owner, sudo_user, unreachable_because
from codebutler.config.paths import Home
from codebutler.config.resolve import VARIABLES
from codebutler.domain.command_help import completions, usage_hint
from codebutler.domain.commands import SLASH
from codebutler.domain.errors import CodeButlerError
from codebutler.parent.bootstrap import supervise
from codebutler.platform.signals import Stopping
from codebutler.protocol.control import DashboardReply, DashboardRequest, reply_to
from codebutler.workspace.manifest import AppCommand, Offers, Suggestion
from codebutler.workspace.server import Options, WorkspaceServer

TOUR = (
    Suggestion(shows="Edit a file", text="replace Hello with Good morning in greet.py"),
    Suggestion(shows="Approve a command", text="delete notes/todo.txt"),
    Suggestion(shows="Answer a question", text="add a .gitignore"),
    Suggestion(shows="Follow a plan", text="review this repository"),
)
"""What the product does, shown on the sample repository by the rehearsal agent."""
OWN_REPO_TOUR = (
    Suggestion(shows="Create a file", text="create hello.txt with Hello!"),
    Suggestion(shows="Approve a command", text="delete hello.txt"),
    *TOUR[2:],
)
"""The same on a copy of the person's own repository."""
MODEL_TOUR = (
    Suggestion(shows="Look around", text="What is this repository about?"),
    Suggestion(shows="Find a problem", text="Find one bug or weakness, and explain it."),
    Suggestion(shows="Make a change", text="Improve the README and show me the diff."),
)
"""Suggestions for an agent with a model."""
# *Commit* works on a machine where git knows nobody yet.
NAME, ADDRESS = "CodeButler demo", "demo@localhost"
TMP = "/tmp"  # noqa: S108 - mkdtemp makes a private directory in it
TRAVERSABLE_MODE = 0o711
SAMPLE = {
    "README.md": "# Sample\n\nA small repository to try CodeButler on.\n\n- `greet.py` says hello.\n",
    "greet.py": 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n\n\nif __name__ == "__main__":\n'
    '    print(greet("world"))\n',
    "notes/todo.txt": "TODO: greet in more languages\nTODO: write a test\n",
}


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a running demo. ``dashboard``: a one-time link, "" if it has none."""

    url: str
    api_url: str
    home: str
    repo: str
    path: str
    sandboxed: bool
    dashboard: str = ""


class DemoOptions(Struct, frozen=True):
    """What the person asked for: a repository (None = a sample), a port (0 = any), an agent."""

    path: Path | None
    port: int
    agent: str


async def run_demo(
    options: DemoOptions, scratch: Path, env: Mapping[str, str], on_started: Callable[[Demo], None]
) -> None:
    """Runs until SIGTERM or SIGINT; everything except the person's own repository is in ``scratch``.

    Raises CodeButlerError with one line: no git, no repository, the port is taken, no sandbox for the agent.
    """
    repo = await asyncio.to_thread(_repository, options.path, scratch, sudo_user(env))
    name = repo.name.lower()
    home = Home(scratch / "home").ensure()
    words = dict(completions())
    butler = AppCommand(
        command=SLASH, description="Ask CodeButler about its work", usage_hint=usage_hint(), words=words
    )
    workspace_options = Options(
        channels=(_channel(name),),
        port=options.port,
        guests=("stranger",),
        guest_bots=("otherbot",),
        offers=Offers(suggestions=_suggestions(options), commands=(butler,), words=words),
    )
    async with WorkspaceServer(workspace_options) as workspace:
        own_env = _environment(env, home)
        sandboxed = options.agent != "rehearsal" or _bubblewrap_works(repo)
        projects = _projects(scratch, repo)
        _write_config(home, workspace, options.agent, projects, sandboxed=sandboxed)
        channel = workspace.channel_id(_channel(name))
        await _run_codebutler(own_env, "add-repo", str(repo), "--channel", channel, "--agent", options.agent)
        registered = await _run_codebutler(own_env, "repos", "--json")
        demo = Demo(
            url=workspace.url,
            api_url=workspace.api_url,
            home=str(home.root),
            repo=msgspec.json.decode(registered)[0]["name"],
            path=str(repo),
            sandboxed=sandboxed,
        )
        await _supervise(
            home, own_env, lambda link: on_started(msgspec.structs.replace(demo, dashboard=link))
        )


def _suggestions(options: DemoOptions) -> tuple[Suggestion, ...]:
    if options.agent != "rehearsal":
        return MODEL_TOUR
    return TOUR if options.path is None else OWN_REPO_TOUR


async def _supervise(home: Home, env: Mapping[str, str], on_started: Callable[[str], None]) -> None:
    """Serve, and report once everything is up."""
    stopping = Stopping()
    serving = asyncio.create_task(supervise(home, env, stopping), name="supervise")
    ready = asyncio.create_task(stopping.ready.wait(), name="ready")
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        on_started(await _dashboard(home))
    ready.cancel()
    await serving


async def _dashboard(home: Home) -> str:
    """A demo runs without it if its port and the following ones are taken."""
    with suppress(CodeButlerError):
        if reply := await reply_to(home.socket, DashboardRequest(), DashboardReply):
            return reply.link
    return ""


def _repository(path: Path | None, scratch: Path, person: Owner) -> Path:
    """A sample, or a copy of the person's own: a demo never changes theirs. If root runs it, it belongs to
    ``person``, or to the repository's owner: no agent is root."""
    git = shutil.which("git")
    if git is None:
        raise CodeButlerError("the demo needs git: install it")
    if path is None:
        repo = _sample(git, scratch / "sample")
    elif not path.is_dir():
        raise CodeButlerError(f"{path.absolute()} is not a directory: pass a git repository")
    else:
        repo = scratch / (path.resolve().name or "repo")
        completed = _clone(git, path.resolve(), repo)
        if completed.returncode:
            raise CodeButlerError(
                f"{path.absolute()} is not a git repository: run `git init` there, or pass another"
            )
        person = person if (owner := Owner.at(path)).is_root else owner
    if os.geteuid() == 0:
        _change_owner(repo, scratch, person)
    return repo


def _clone(git: str, path: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """As the owner of ``path`` if we are root: git serves users only their own repositories."""
    command = [git, "clone", "-q", "--", str(path), str(place)]
    owner = Owner.at(path) if os.geteuid() == 0 and path.exists() else None
    if owner is None or owner.is_root:
        return subprocess.run(command, capture_output=True, text=True)
    if why := unreachable_because(owner, path):
        raise CodeButlerError(why)
    place.parent.chmod(TRAVERSABLE_MODE)
    place.mkdir()
    os.chown(place, owner.uid, owner.gid)
    return subprocess.run(command, capture_output=True, text=True, cwd="/", **_run_as(owner))


def _run_as(owner: Owner) -> dict[str, Any]:
    return {
        "user": owner.uid,
        "group": owner.gid,
        "extra_groups": (),
        "env": {"PATH": os.defpath, "LC_ALL": "C"},
    }


def _sample(git: str, place: Path) -> Path:
    for name, text in SAMPLE.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    commands = (
        ("-c", "init.defaultBranch=main", "init", "-q"),
        ("config", "user.name", NAME),
        ("config", "user.email", ADDRESS),
        ("add", "."),
        ("commit", "-q", "-m", "Start"),
    )
    for arguments in commands:
        subprocess.run([git, *arguments], cwd=place, check=True, capture_output=True)
    return place


def _change_owner(repo: Path, scratch: Path, person: Owner) -> None:
    """Give what root has made to an ordinary user."""
    scratch.chmod(TRAVERSABLE_MODE)
    for path in (repo, *repo.rglob("*")):
        os.chown(path, person.uid, person.gid, follow_symlinks=False)


def _channel(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:80] or "repo"


def _environment(env: Mapping[str, str], home: Home) -> dict[str, str]:
    """Our environment, without variables that would point the demo at a real workspace."""
    inherited = {name: value for name, value in env.items() if name not in VARIABLES}
    return {**inherited, "CODEBUTLER_HOME": str(home.root)}


def _projects(scratch: Path, repo: Path) -> Path:
    """The directory in which `!new` creates repositories; it belongs to the owner of ``repo``."""
    (projects := scratch / "projects").mkdir()
    if os.geteuid() == 0:
        os.chown(projects, (owner := Owner.at(repo)).uid, owner.gid)
    return projects


def _write_config(
    home: Home, workspace: WorkspaceServer, agent: str, projects: Path, *, sandboxed: bool
) -> None:
    config = {
        **workspace.sections,
        "agent": {"default": agent, "debounceSeconds": 1},
        "sandbox": {"mode": "auto" if sandboxed else "none"},
        "newRepos": {"root": str(projects), "allow": ["*"], "author": f"{NAME} <{ADDRESS}>"},
    }
    home.config.touch(mode=0o600)
    home.config.write_bytes(msgspec.json.encode(config))


def _bubblewrap_works(repo: Path) -> bool:
    """As the owner of ``repo``. Without a sandbox only the rehearsal agent may run: it runs nothing but a few
    commands of its own."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return False
    probe = [bwrap, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "/bin/sh", "-c", "true"]
    who = _run_as(Owner.at(repo)) if os.geteuid() == 0 else {}
    return subprocess.run(probe, capture_output=True, cwd="/", **who).returncode == 0


async def _run_codebutler(env: Mapping[str, str], *arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "codebutler",
        *arguments,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, trouble = await process.communicate()
    if process.returncode:
        raise CodeButlerError(trouble.decode(errors="replace").removeprefix("codebutler: ").strip())
    return output


def remove_scratch(scratch: Path) -> None:
    """Delete the temporary home and sample; the system's cleaner gets what cannot be deleted."""
    shutil.rmtree(scratch, ignore_errors=True)


def scratch_root() -> str:
    """The directory for temporary files; short, because a Unix socket's path must be, and under root one that
    the repository's owner can reach."""
    place = Path(os.environ.get("TMPDIR") or TMP)
    if os.geteuid() == 0 and unreachable_because(sudo_user(os.environ), place / "any"):
        return TMP
    return str(place)
