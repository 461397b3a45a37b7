"""Limits without I/O: where groups are, what is written into them, how a program enters, what people are told."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import SandboxSection
from codebutler.config.trust import is_guarded
from codebutler_worker.sandbox.cgroups import ResourceLimits, Slot, own_slots
from codebutler_worker.sandbox.limits import Limiter, configured, entrance, explain, inner

MOUNT = "30 23 0:29 {root} {where} rw,relatime shared:9 - {kind} cgroup rw,{options}"
LIMITS = ResourceLimits(memory_bytes=1000, processes=7, cpus=0.5)


def mount(where: str, kind: str, options: str, root: str = "/") -> str:
    return MOUNT.format(where=where, kind=kind, options=options, root=root)


def test_version_2_alone() -> None:
    slots = own_slots("0::/user.slice/app\n", mount("/sys/fs/cgroup", "cgroup2", "nsdelegate"))
    assert slots == (Slot(Path("/sys/fs/cgroup/user.slice/app"), 2, ()),)


def test_version_1_joins_controllers_and_leaves_others_out() -> None:
    membership = "9:name=systemd:/x\n3:memory:/m/one\n2:cpu,cpuacct:/\n1:freezer:/\n0::/\n"
    table = "\n".join(
        (
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
            mount("/c/memory", "cgroup", "memory"),
            mount("/c/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
            mount("/c/freezer", "cgroup", "freezer"),
            mount("/c/unified", "cgroup2", "rw"),
        )
    )
    assert own_slots(membership, table) == (
        Slot(Path("/c/memory/m/one"), 1, ("memory",)),
        Slot(Path("/c/cpu,cpuacct"), 1, ("cpu",)),
        Slot(Path("/c/unified"), 2, ()),
    )


def test_a_container_sees_its_own_part_of_the_tree() -> None:
    table = mount("/c/pids", "cgroup", "pids", root="/docker/abc")
    assert own_slots("4:pids:/docker/abc/job\n", table) == (Slot(Path("/c/pids/job"), 1, ("pids",)),)
    assert own_slots("4:pids:/elsewhere\n", table) == (Slot(Path("/c/pids"), 1, ("pids",)),)


def test_a_hierarchy_that_is_not_mounted_is_no_place() -> None:
    assert own_slots("4:pids:/\n0::/\n", mount("/c/memory", "cgroup", "memory")) == ()


def test_what_is_written_into_a_group_of_version_2() -> None:
    slot = Slot(Path("/c"), 2, ("pids", "memory", "cpu"))
    assert LIMITS.settings(slot) == [
        ("pids.max", "7"),
        ("memory.max", "1000"),
        ("memory.swap.max", "0"),
        ("cpu.max", "50000 100000"),
    ]


def test_what_is_written_into_a_group_of_version_1() -> None:
    slot = Slot(Path("/c"), 1, ("memory", "cpu"))
    assert LIMITS.settings(slot) == [
        ("memory.limit_in_bytes", "1000"),
        ("memory.memsw.limit_in_bytes", "1000"),
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "50000"),
    ]


def test_zero_is_no_limit() -> None:
    assert ResourceLimits().settings(Slot(Path("/c"), 2, ("pids", "memory", "cpu"))) == []
    assert not ResourceLimits().any
    assert "ulimit -f" not in entrance(ResourceLimits())[2]


async def test_the_program_and_the_groups_are_arguments_never_script(tmp_path: Path) -> None:
    (place := tmp_path / "one two").mkdir()
    limiter = Limiter(ResourceLimits(file_bytes=2**20), (Slot(place, 1, ()),))
    group, argv = await limiter.enclose(("a $(b)", "--"))
    assert argv[3:] == ("limits", f"{group.directories[0]}/tasks", "--", "a $(b)", "--")
    assert "ulimit -f 2048" in argv[2]
    assert "ulimit -d" not in argv[2]
    assert "ulimit -d 1024" in entrance(ResourceLimits(), 2**20)[2]
    assert inner(("a;b",), ResourceLimits(processes=9))[3:] == ("limits", "a;b")


def test_what_people_are_told_names_the_limit_and_its_setting() -> None:
    limits = ResourceLimits(memory_bytes=64 * 2**20, processes=9)
    assert explain((), limits) == ""
    assert "64 MB of memory (sandbox.memoryMb)" in explain(("memory",), limits)
    both = explain(("memory", "processes"), limits)
    assert "and 9 processes (sandbox.processes)" in both
    assert "\n" not in both


def test_the_log_says_what_cannot_be_enforced() -> None:
    limits = configured(SandboxSection(cpus=2))
    told = Limiter(limits).summary(sandboxed=False)
    assert "4096 MB of memory for each process," in told
    assert "2 processors (not enforceable here)" in told
    assert "10 GB per file," in told
    everywhere = (Slot(Path("/c"), 2, ("pids", "memory", "cpu")),)
    told = Limiter(limits, everywhere).summary(sandboxed=False)
    assert "not enforceable" not in told
    assert "control groups v2" in told


def test_a_repository_cannot_raise_its_own_limits() -> None:
    for key in ("memoryMb", "processes", "fileSizeGb", "cpus"):
        assert is_guarded(f"sandbox.{key}")
