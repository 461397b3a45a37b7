"""`codebutler audit`: what was executed or refused, and whether the record is whole."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, Literal

import msgspec
import typer

from codebutler.cli.output import print_json, print_table, say
from codebutler.cli.surroundings import home
from codebutler.domain.errors import CodeButlerError
from codebutler.observe.chain import Break, Head, verify_all


def run(
    action: Annotated[
        Literal["show", "verify"], typer.Argument(help="Show its end, or verify the chain.")
    ] = "show",
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many lines from the end.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the end of the audit log, or verify that no line of it was changed, removed or inserted, and that it ends
    where it was left."""
    path = home().audit
    if not path.is_file():
        if Head(path).read():
            raise CodeButlerError(f"the audit log {path} was removed")
        raise CodeButlerError(f"there is no audit log at {path} yet: `codebutler supervise` creates it")
    if action == "verify":
        broken = verify_all(path)
        if broken is not None:
            raise CodeButlerError(f"{broken.path}: {_told(broken)}")
        say("Audit log verified.")
        return
    with path.open("rb") as file:
        last = [row for raw in deque(file, maxlen=lines) if (row := _row(raw)) is not None]
    if as_json:
        print_json(last)
    else:
        print_table(("TIME", "USER", "KIND", "DECISION", "TEXT"), [_cells(row) for row in last])


def _told(broken: Break) -> str:
    if broken.cut:
        return f"at line {broken.line} lines were removed or changed: they were on the disk, and are not here"
    return f"line {broken.line} does not fit the one before: it, or a line before it, was changed, removed or inserted"


def _row(raw: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None  # torn by a crash; `verify` speaks of it


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    text = " ".join(str(row.get("text", "")).split())
    return (
        str(row.get("time", ""))[:19],
        *(str(row.get(key, "")) for key in ("user", "kind", "decision")),
        text[:80],
    )
