"""The rooms of both packages and which imports which, read from the code: the picture on the architecture page."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.unit.docs.pages import ROOT

PARENT, WORKER = "codebutler", "codebutler_worker"
PLACES = {PARENT: ROOT / PARENT, WORKER: ROOT / "workers" / WORKER}

Imports = dict[str, set[str]]
"""The rooms that each room imports."""


def picture(package: str) -> str:
    """A Mermaid graph of a package's rooms, those that import others above them. An arrow that a longer way already
    shows is left out: without that every room would point at the lowest ones."""
    arrows = sorted(
        (room, other) for room, others in reduced(imports(package)).items() for other in sorted(others)
    )
    return "\n".join(["```mermaid", "graph TD", *(f"  {a} --> {b}" for a, b in arrows), "```"])


def imports(package: str) -> Imports:
    """Which room imports which. A room is a folder at the top of the package."""
    found: Imports = {}
    place = PLACES[package]
    files = sorted(place.glob("*/**/*.py"))
    rooms = {file.relative_to(place).parts[0] for file in files}
    for file in files:
        room = file.relative_to(place).parts[0]
        others = rooms.intersection(_rooms(package, file))
        found.setdefault(room, set()).update(others - {room})
    return found


def reduced(graph: Mapping[str, Iterable[str]]) -> Imports:
    """The same graph without the arrows that a longer way shows. It has no circle: the import contracts see to that."""
    whole = {room: set(others) for room, others in graph.items()}

    def reach(room: str) -> set[str]:
        return {room}.union(*(reach(other) for other in whole.get(room, ())))

    return {
        room: {other for other in others if not any(other in reach(step) for step in others - {other})}
        for room, others in whole.items()
    }


def _rooms(package: str, file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        else:
            continue
        for name in named:
            top, _, rest = name.partition(".")
            if top == package and rest:
                yield rest.split(".")[0]
