"""What starts first behind a door, as arguments; what it does is tried with the real walls."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.sandbox.bwrap import bwrap_argv
from codebutler_worker.sandbox.port import ProxySocket
from codebutler_worker.sandbox.prelude import INSIDE, SENDMSG, through
from codebutler_worker.sandbox.seccomp import machines
from tests.unit.sandbox.test_layout import CHECKOUT, SYSTEM
from tests.unit.sandbox.test_layout import INSIDE as ROOM

DOOR = ProxySocket(Path("/tmp/cb-way-1/door"), 3128)


@pytest.mark.parametrize("machine", machines())
def test_the_program_follows_word_for_word(machine: str) -> None:
    argv = ("--evil", "-e", "a b", "")
    assert through(DOOR, Path("/usr/bin/perl"), argv, perl_on=machine)[3:] == (
        INSIDE,
        "3128",
        str(SENDMSG[machine]),
        *argv,
    )
    assert through(DOOR, Path("/usr/bin/python3"), argv)[-6:] == (INSIDE, "3128", *argv)


def test_behind_a_door_there_is_no_network_and_no_resolver() -> None:
    argv = bwrap_argv(("true",), replace(ROOM, network=DOOR), CHECKOUT, SYSTEM)
    assert "--unshare-net" in argv
    assert f"--ro-bind {DOOR.path} {INSIDE} " in " ".join(argv)
    assert str(SYSTEM.resolver) not in argv
