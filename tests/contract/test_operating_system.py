"""What every system can tell, asked of this one; and of macOS as far as its programs exist here: ps is Linux's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codebutler.domain.clock import SystemClock
from codebutler.platform.macos import MacOS
from codebutler.platform.system import OperatingSystem, this_system
from tests.programs import require

EXEC_S = 5.0
MARK = f"CODEBUTLER_TEST_MARK_{os.getpid()}"
"""Several tests run at once."""
SYSTEMS: dict[str, type[OperatingSystem]] = {"this": type(this_system()), "macos": MacOS}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> OperatingSystem:
    if request.param == "macos":
        require("ps")
    return SYSTEMS[request.param]()


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A shell and its child."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 300 & echo $!; wait"],
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], MARK: "here"},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_the_table_of_processes(system: OperatingSystem, family: tuple[int, int]) -> None:
    parent, child = family
    table = system.seen()
    assert table[child].parent == parent
    assert table[parent].parent == os.getpid()
    assert system.seen([child, 2**22 + 1]) == {child: table[child]}
    assert system.children(parent) == [child]
    assert table[child].started.isalnum(), "it becomes part of a container's name"


def test_a_zombie_is_nobody(system: OperatingSystem) -> None:
    process = subprocess.Popen(["/bin/true"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert system.seen([process.pid]) == {}
    process.stdout.close()
    process.wait()


def test_what_a_process_takes(system: OperatingSystem, family: tuple[int, int]) -> None:
    parent, child = family
    use = system.use_of([os.getpid(), parent, child, 2**22 + 1])
    assert sorted(use) == sorted([os.getpid(), parent, child])
    assert use[parent].programs == 1
    assert use[child].programs == 0
    assert 2**22 < (use[os.getpid()].memory_bytes or 0) < 2**32


def test_who_carries_a_mark_is_found_where_environments_are_shown(family: tuple[int, int]) -> None:
    until_s = time.monotonic() + EXEC_S
    while len(found := this_system().carrying(MARK)) == 1 and time.monotonic() < until_s:
        continue  # one that has just been forked shows no environment while it becomes its program
    started = this_system().seen(family)
    if found or sys.platform == "linux":
        assert found == {pid: (started[pid].started, "here") for pid in family}
    assert MacOS().carrying(MARK) == {}


def test_a_handle_survives_its_process(family: tuple[int, int]) -> None:
    system = this_system()
    handle = system.handle(family[0])
    if handle is None:
        pytest.skip("the system has no handles")
    system.send(handle, 0)
    os.killpg(family[0], signal.SIGKILL)
    os.waitid(os.P_PID, family[0], os.WEXITED | os.WNOWAIT)
    os.close(handle)
    assert system.handle(2**22 + 1) is None


def test_a_file_and_a_directory_are_synced(system: OperatingSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for path in (tmp_path, tmp_path / "file"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            system.sync(descriptor)
        finally:
            os.close(descriptor)
    with pytest.raises(OSError, match="Bad file"):
        system.sync(descriptor)


def test_who_is_on_the_other_side(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert this_system().peer_uid(ours) == os.getuid()


def test_a_name_watch_tells_of_new_names(tmp_path: Path) -> None:
    try:
        watch = this_system().name_watch()
    except OSError:
        pytest.skip("the system has none: names are polled")
    try:
        watch.watch(tmp_path)
        (tmp_path / "new").write_text("")
        (tmp_path / "new").unlink()
        assert [(each.directory, each.name, each.gone) for each in watch.read()] == [
            (tmp_path, "new", False),
            (tmp_path, "new", True),
        ]
        assert watch.read() == []
    finally:
        os.close(watch.fd)


def test_a_path_is_opened_without_following_links(system: OperatingSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(system.open_beneath(top, "file", os.O_RDONLY))
        with pytest.raises(OSError, match="link"):
            system.open_beneath(top, "link", os.O_RDONLY)
    except NotImplementedError:
        pytest.skip("not in one call")
    finally:
        os.close(top)


def test_content_is_readable_as_long_as_its_owner_lives(system: OperatingSystem) -> None:
    class Owner:
        pass

    owner = Owner()
    path = Path(system.unwritable(b"content", owner))
    assert path.read_bytes() == b"content"
    del owner
    assert not path.exists()


def test_the_clock_counts_at_least_what_the_monotonic_one_counts() -> None:
    clock = SystemClock()
    before = clock.boottime(), clock.monotonic()
    time.sleep(0.01)
    slept = clock.boottime() - before[0]
    assert 0.01 <= slept <= clock.monotonic() - before[1] + 1


def test_a_longer_socket_path_than_it_says_is_refused(tmp_path: Path) -> None:
    room = this_system().socket_path_bytes - len(os.fsencode(tmp_path)) - 1
    with socket.socket(socket.AF_UNIX) as fits:
        fits.bind(str(tmp_path / ("a" * room)))
    with socket.socket(socket.AF_UNIX) as too_long, pytest.raises(OSError, match="too long"):
        too_long.bind(str(tmp_path / ("a" * (room + 1))))


def test_no_directory_of_ours_has_an_access_list(tmp_path: Path) -> None:
    assert not this_system().has_access_list(tmp_path)
    assert not this_system().keychain_has("CodeButler's tests")
