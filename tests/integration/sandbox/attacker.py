"""An agent that wants out, behind each kind of walls."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from tests.containers import attack
from tests.ordinary import give_away
from tests.programs import require

ENV = {"PATH": "/usr/bin:/bin"}
SECRET = "the secret"
KEPT = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".codebutler/config.json",
    ".claude.json",
    "other-repo/notes.txt",
)


class Attacker:
    """An agent that wants out. ``base`` holds its repository (``repo``) and the home it must not see (``home``)."""

    def __init__(self, sandbox: Sandbox, base: Path) -> None:
        self.sandbox = sandbox
        self.base = base
        self.repo = base / "repo"
        self.home = base / "home"
        self.tried = 0
        self.policy = SandboxPolicy(
            workdir=self.repo, home=self.home, env=ENV, network="none", conversation="C1:1.1"
        )

    async def tries(self, script: str, policy: SandboxPolicy | None = None) -> tuple[int, str]:
        """Exit code and all that was said."""
        self.tried += 1
        return await attack(self.sandbox, policy or self.policy, script)

    async def fails(self, *scripts: str) -> None:
        """None of ``scripts`` ends well, and none shows a secret."""
        for script in scripts:
            code, said = await self.tries(script)
            assert code != 0, (script, said)
            assert SECRET not in said, script


@pytest.fixture
def base(git_repo: Path) -> Iterator[Path]:
    """Where every user may go, which pytest's own directories are not."""
    with tempfile.TemporaryDirectory(prefix="attack-", dir="/var/tmp") as directory:
        base = Path(directory).resolve()
        base.chmod(0o755)
        shutil.copytree(git_repo, base / "repo", symlinks=True)
        for kept in KEPT:
            (base / "home" / kept).parent.mkdir(parents=True, exist_ok=True)
            (base / "home" / kept).write_text(SECRET)
        private = base / "repo" / ".codebutler"
        (private / "files").mkdir(parents=True)
        (private / "store.db").write_text(SECRET)
        give_away(base)
        yield base


@pytest.fixture(params=["bwrap", pytest.param("docker", marks=pytest.mark.root)])
async def attacker(
    request: pytest.FixtureRequest, base: Path, record_property: Callable[[str, object], None]
) -> AsyncIterator[Attacker]:
    """What starts here is an ordinary user's, whoever starts it."""
    hidden = (base / "home" / ".codebutler",)
    if request.param == "docker":
        docker = DockerSandbox(hidden, host=request.getfixturevalue("docker_host"))
        attacker = Attacker(docker, base)
        yield attacker
        await docker.close()
    else:
        attacker = Attacker(BwrapSandbox(hidden, program=require("bwrap")), base)
        yield attacker
    record_property("attacks", attacker.tried)
