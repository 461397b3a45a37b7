"""The arguments of `docker run`, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.git_repo import Owner
from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.docker import DEFAULT
from codebutler_worker.sandbox.docker_argv import AGENT, agent_of, run_options, words
from codebutler_worker.sandbox.limits import configured
from codebutler_worker.sandbox.system import Inside

PROMISED = (
    "--read-only --cap-drop=ALL --security-opt=no-new-privileges --pids-limit=128 --cpus=1 --memory=512m "
    "--user=1000:1000 --workdir=/workspace --network=none"
)
REPO = Path("/home/u/repo")
CHECKOUT = Checkout(
    root=REPO,
    owner=Owner(1000, 1000),
    pinned=(REPO / ".git",),
    fixed=(REPO / ".git/config",),
    private=REPO / ".codebutler",
    shared=(REPO / ".codebutler/files",),
)
INSIDE = Inside(home=Path("/home/u"), network="none")


def options(
    section: SandboxSection | None = None, owner: tuple[int, int] = (1000, 1000), inside: Inside = INSIDE
) -> tuple[str, ...]:
    limits = configured(section or SandboxSection(), DEFAULT)
    return words(run_options(inside, CHECKOUT, agent_of(Owner(*owner)), limits))


def test_by_default_the_promised_flags_stand_there_as_they_are_promised() -> None:
    given = options()
    assert " ".join(given[:9]) == PROMISED
    private = "ro,nosuid,nodev,noexec,mode=0755,uid=1000,gid=1000,size=4k"
    assert given[9:] == (
        f"--ulimit=fsize={10 * 2**30}",
        "--ulimit=core=0",
        "--memory-swap=512m",
        "--log-driver=none",
        "--dns=127.0.0.1",
        "--dns-search=.",
        "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size=256m",
        "--tmpfs=/home/u:rw,exec,nosuid,nodev,mode=0700,uid=1000,gid=1000,size=64m",
        "--mount=type=bind,source=/home/u/repo,destination=/home/u/repo",
        "--mount=type=bind,source=/home/u/repo/.git,destination=/home/u/repo/.git",
        "--mount=type=bind,source=/home/u/repo/.git/config,destination=/home/u/repo/.git/config,readonly",
        f"--tmpfs=/home/u/repo/.codebutler:{private}",
        "--mount=type=bind,source=/home/u/repo/.codebutler/files,destination=/home/u/repo/.codebutler/files",
        "--mount=type=bind,source=/home/u/repo,destination=/workspace",
        "--mount=type=bind,source=/home/u/repo/.git,destination=/workspace/.git",
        "--mount=type=bind,source=/home/u/repo/.git/config,destination=/workspace/.git/config,readonly",
        f"--tmpfs=/workspace/.codebutler:{private}",
        "--mount=type=bind,source=/home/u/repo/.codebutler/files,destination=/workspace/.codebutler/files",
    )


def test_what_git_may_track_has_a_place_of_its_own_to_lie_in() -> None:
    tracking = replace(CHECKOUT, index=Path("/home/u/repo/.git/index"))
    given = words(run_options(INSIDE, tracking, AGENT, configured(SandboxSection(), DEFAULT)))
    private = "rw,nosuid,nodev,mode=0755,uid=1000,gid=1000,size=64m"
    assert [word for word in given if ".codebutler:" in word] == [
        f"--tmpfs=/home/u/repo/.codebutler:{private}",
        f"--tmpfs=/workspace/.codebutler:{private}",
    ]


@pytest.mark.parametrize(
    ("section", "instead"),
    [
        (SandboxSection(memory_mb=4096), {"--memory=512m": "--memory=4096m"}),
        (SandboxSection(processes=512), {"--pids-limit=128": "--pids-limit=512"}),
        (SandboxSection(cpus=0.5), {"--cpus=1": "--cpus=0.5"}),
        (SandboxSection(memory_mb=0, processes=0), {"--memory=512m": "", "--pids-limit=128": ""}),
        (SandboxSection(memory_mb=512, processes=128, cpus=1), {}),
    ],
)
def test_a_limit_differs_where_the_configuration_says_so(
    section: SandboxSection, instead: dict[str, str]
) -> None:
    expected = [given for flag in PROMISED.split() if (given := instead.get(flag, flag))]
    assert list(options(section)[: len(expected)]) == expected


@pytest.mark.parametrize(
    ("owner", "user"),
    [
        ((1000, 1000), "1000:1000"),
        ((1000, 100), "1000:1000"),
        ((501, 20), "501:20"),
        ((1001, 0), "1001:1001"),
    ],
)
def test_the_user_is_another_where_the_repository_is_anothers(owner: tuple[int, int], user: str) -> None:
    assert f"--user={user}" in options(owner=owner)


def test_root_is_refused_and_told_what_to_do() -> None:
    with pytest.raises(SandboxUnavailableError, match="chown -R 1000:1000 /home/u/repo"):
        options(owner=(0, 0))


def test_only_what_is_configured_so_has_this_machines_network() -> None:
    assert "--network=host" in options(inside=replace(INSIDE, network="open"))
    assert Owner(1000, 1000) == AGENT
