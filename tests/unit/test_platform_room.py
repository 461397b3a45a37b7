"""Which system this is, is known in one room: nobody else asks, or calls what only one system has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "codebutler" / "platform"
ASKED = {"sys.platform", "os.name", "os.uname", "platform.system", "platform.uname", "platform.mac_ver"}
ONLY_ONE_HAS = {
    "memfd_create",
    "listxattr",
    "getxattr",
    "setxattr",
    "pidfd_open",
    "pidfd_send_signal",
    "epoll",
    "kqueue",
    "SO_PEERCRED",
    "CLOCK_BOOTTIME",
}
SANDBOX = "workers/codebutler_worker/sandbox"
ALLOWED = {
    "codebutler/operations/demo.py": "tries bubblewrap",
    f"{SANDBOX}/bwrap.py": "bubblewrap is Linux's",
    f"{SANDBOX}/cgroups.py": "control groups are Linux's; elsewhere there are none to find",
    f"{SANDBOX}/containers.py": "the same, of a container's first process",
    f"{SANDBOX}/system.py": "what bubblewrap masks",
    f"{SANDBOX}/destinations.py": "sockets in namespaces of Linux; elsewhere none is listed",
    "workers/codebutler_worker/warmup.py": "ctypes for CPython's objects, on any system",
}


def found(tree: ast.AST) -> Iterator[str]:
    """What a module asks or calls; its documentation may name anything."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                text = ast.unparse(node)
                if text in ASKED or name in ONLY_ONE_HAS or text.startswith("fcntl.F_"):
                    yield text
            case ast.Import(names=names) if any(alias.name == "ctypes" for alias in names):
                yield "ctypes"
            case ast.ImportFrom(module="ctypes"):
                yield "ctypes"
            case ast.Constant(value=str(text)) if text.startswith(("/proc", "/sys/")):
                if id(node) not in documentation:
                    yield text


def askers() -> dict[str, list[str]]:
    """By file, outside the room."""
    files = [path for top in ("codebutler", "workers") for path in (ROOT / top).rglob("*.py")]
    asked = {
        str(path.relative_to(ROOT)): sorted(set(found(ast.parse(path.read_text()))))
        for path in files
        if not path.is_relative_to(ROOM)
    }
    return {path: names for path, names in asked.items() if names}


def test_nobody_else_asks_which_system_this_is() -> None:
    unknown = {path: names for path, names in askers().items() if path not in ALLOWED}
    assert unknown == {}, "ask `this_system()` (codebutler/platform/system.py)"


def test_who_may_is_still_needed_and_never_asks_for_the_name() -> None:
    asked = askers()
    assert sorted(ALLOWED) == sorted(path for path in asked if path in ALLOWED)
    assert not {name for path in ALLOWED for name in asked[path]} & ASKED


def test_what_it_finds() -> None:
    text = (
        'import ctypes\n"/proc is fine"\nif sys.platform: fcntl.F_X; open("/proc/1/stat"); os.pidfd_open(1)'
    )
    assert sorted(found(ast.parse(text))) == [
        "/proc/1/stat",
        "ctypes",
        "fcntl.F_X",
        "os.pidfd_open",
        "sys.platform",
    ]
