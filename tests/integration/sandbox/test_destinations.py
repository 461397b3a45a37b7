"""Paths inside a hostile directory, by openat2 and by the portable walk."""

from __future__ import annotations

import os
import stat
import threading
from collections import Counter
from pathlib import Path

import pytest

from codebutler_worker.sandbox.destinations import (
    O_PATH,
    UnsafePathError,
    open_beneath,
    read_regular,
    status_beneath,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "same").symlink_to("b")
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("portable", [False, True])
def test_real_paths_open(root: Path, portable: bool) -> None:
    descriptor = open_beneath(root, "a/b/file", os.O_RDONLY, portable=portable)
    with os.fdopen(descriptor) as file:
        assert file.read() == "inside"
        assert not os.get_inheritable(descriptor)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("flags", [os.O_RDONLY, O_PATH])
@pytest.mark.parametrize(
    "path",
    [
        "link",
        "dangling",
        "a/up/a/b/file",
        "a/same",
        "a/same/file",
        "link/x",
        "../secret",
        "/etc/passwd",
        "",
        ".",
    ],
)
def test_links_and_ways_out_are_refused(root: Path, path: str, flags: int, portable: bool) -> None:
    with pytest.raises(UnsafePathError):
        open_beneath(root, path, flags, portable=portable)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("path", ["nothing", "a/nothing", "nothing/at/all"])
def test_what_is_missing_is_missing(root: Path, path: str, portable: bool) -> None:
    with pytest.raises(FileNotFoundError):
        open_beneath(root, path, O_PATH, portable=portable)


@pytest.mark.parametrize("portable", [False, True])
def test_no_descriptor_is_left_open(root: Path, portable: bool) -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("a/b/file", "link", "a/up/a", "nothing", "a/b/file/x"):
        try:
            os.close(open_beneath(root, path, os.O_RDONLY, portable=portable))
        except OSError:
            continue
    for path in ("a", "pipe", "nothing"):
        with pytest.raises(OSError, match=r"regular file|directory|No such"):
            read_regular(root, path, 100)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_status_tells_what_is_there(root: Path) -> None:
    found = status_beneath(root, "a/b")
    assert found is not None
    assert stat.S_ISDIR(found.st_mode)
    assert status_beneath(root, "a/c") is None


def test_only_regular_files_of_a_bounded_size_are_read(root: Path) -> None:
    assert read_regular(root, "a/b/file", 6) == b"inside"
    with pytest.raises(UnsafePathError, match="larger"):
        read_regular(root, "a/b/file", 5)
    for path in ("pipe", "a"):
        with pytest.raises(OSError, match=r"regular file|directory"):
            read_regular(root, path, 100)


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("swapped", ["a/b/file", "a/b"])
def test_a_link_swapped_in_meanwhile_is_never_followed(root: Path, swapped: str, portable: bool) -> None:
    """Another thread puts a link in the file's or its directory's place, and back, as fast as it can."""
    place, aside, link = root / swapped, root / "aside", root / "lure"
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside")
    link.symlink_to(outside if swapped == "a/b" else outside / "file")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            place.rename(aside)
            link.rename(place)
            place.rename(link)
            aside.rename(place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: Counter[str] = Counter()
    try:
        while min(seen["inside"], seen["refused"]) < 20 and seen.total() < 300_000:
            seen[_read(root, "a/b/file", portable)] += 1
    finally:
        over.set()
        swapper.join()
    assert seen["inside"] >= 20
    assert seen["refused"] >= 20
    assert seen["outside"] == 0


def _read(root: Path, relative: str, portable: bool) -> str:
    try:
        descriptor = open_beneath(root, relative, os.O_RDONLY, portable=portable)
    except UnsafePathError:
        return "refused"
    except FileNotFoundError:
        return "missing"
    try:
        return os.read(descriptor, 100).decode()
    finally:
        os.close(descriptor)
