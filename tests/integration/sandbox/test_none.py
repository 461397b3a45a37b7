"""Without walls: what root starts is an ordinary user's, or does not start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.select import NoSandbox
from tests.containers import attack, open_directory
from tests.ordinary import give_away

OWNER = 4321


@pytest.fixture
def policy(git_repo: Path) -> Iterator[SandboxPolicy]:
    with open_directory() as base:
        shutil.copytree(git_repo, base / "repo", symlinks=True)
        env = {"PATH": "/usr/bin:/bin"}
        yield SandboxPolicy(workdir=base / "repo", home=base, env=env)


@pytest.mark.root
async def test_root_acts_as_the_owner_and_gives_up_every_power(policy: SandboxPolicy) -> None:
    give_away(policy.workdir, OWNER)
    os.chown(policy.workdir, OWNER, 0)  # a group of root's is not taken along
    (secret := policy.workdir.parent / "secret").write_text("the secret")
    secret.chmod(0o640)
    code, said = await attack(
        NoSandbox(), policy, "id -u; id -g; id -G; grep -E '^(Cap|NoNew)' /proc/self/status; touch made"
    )
    uid, gid, groups, *status = said.splitlines()
    assert (code, uid, gid, groups) == (0, str(OWNER), str(OWNER), str(OWNER))
    assert {line.split("\t")[1] for line in status if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in status
    assert (policy.workdir / "made").stat().st_uid == OWNER
    code, said = await attack(NoSandbox(), policy, f"cat {secret}; cat /etc/shadow; kill -0 {os.getpid()}")
    assert code != 0
    assert "the secret" not in said
    assert "root:" not in said


def test_root_starts_nothing_in_a_repository_of_roots_and_says_how(tmp_path: Path) -> None:
    policy = SandboxPolicy(workdir=Path("/"), home=tmp_path)
    with pytest.raises(SandboxUnavailableError, match=f"chown -R 1000:1000 {policy.workdir}") as caught:
        NoSandbox(uid=0).wrap(("true",), policy)
    assert "\n" not in str(caught.value)


async def test_an_ordinary_user_starts_what_is_asked_for(policy: SandboxPolicy) -> None:
    launch = NoSandbox(uid=1000).wrap(("id", "-u"), policy)
    assert (launch.argv, launch.cwd) == (("id", "-u"), policy.workdir)
