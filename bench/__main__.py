"""`python -m bench [NAME …]`: measure, print one table, exit 1 if a figure was missed, 2 if it could not be had."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import (
    ack,
    burst,
    calls,
    catchup,
    chats,
    click,
    cluster,
    containers,
    edits,
    first,
    first_answer,
    flood,
    history,
    hostile,
    many,
    memory,
    native,
    recover,
    redact,
    sandbox,
    start,
    storm,
    survive,
    turn,
    wake,
    walk,
)
from bench.figures import Figure, table
from bench.page import machine, page
from bench.scene import QUICK, BenchError, Pace
from tests.ordinary import open_the_way

MEASUREMENTS: Mapping[str, Callable[[Path, Pace], Awaitable[list[Figure]]]] = {
    "start": start.measure,
    "first-answer": first_answer.measure,
    "ack": ack.measure,
    "catch-up": catchup.measure,
    "first": first.measure,
    "turn": turn.measure,
    "click": click.measure,
    "edits": edits.measure,
    "burst": burst.measure,
    "storm": storm.measure,
    "calls": calls.measure,
    "flood": flood.measure,
    "history": history.measure,
    "hostile": hostile.measure,
    "memory": memory.measure,
    "chats": chats.measure,
    "wake": wake.measure,
    "many": many.measure,
    "recover": recover.measure,
    "redact": redact.measure,
    "survive": survive.measure,
    "walk": walk.measure,
    "sandbox": sandbox.measure,
    "containers": containers.measure,
    "native": native.measure,
    "cluster": cluster.measure,
}


def main() -> int:
    """0 when every figure was reached, 1 when one was missed, 2 when one could not be had."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all if left out"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("-v", "--verbose", action="store_true", help="walk: print the way itself, in order")
    parser.add_argument("--place", type=Path, help="measure on the disk of this directory")
    parser.add_argument("--page", type=Path, help="write the figures into this page of the documentation")
    given = parser.parse_args()
    if unknown := set(given.names) - MEASUREMENTS.keys():
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    names = given.names or list(MEASUREMENTS)
    pace = replace(QUICK if given.quick else Pace(), verbose=given.verbose)
    on = machine(os.getloadavg()[0])
    found = asyncio.run(_measure(names, pace, given.place))
    figures = [figure for each in found.values() for figure in each]
    print(_json(figures) if given.json else table(figures))
    if given.page:
        about = {name: _about(measure) for name, measure in MEASUREMENTS.items()}
        before = given.page.read_text(encoding="utf-8") if given.page.exists() else ""
        given.page.write_text(page(found, about, on, datetime.now(UTC), before), encoding="utf-8")
    return int(not all(figure.reached for figure in figures)) if all(found.values()) else 2


def _about(measure: Callable[..., object]) -> str:
    """The first paragraph of what the measurement's module says of itself."""
    first = (sys.modules[measure.__module__].__doc__ or "").partition("\n\n")[0]
    return " ".join(first.replace("``", "`").split())


async def _measure(names: list[str], pace: Pace, where: Path | None) -> dict[str, list[Figure]]:
    """The figures of each; none where they could not be had."""
    found: dict[str, list[Figure]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="cb-bench-", dir=where, ignore_cleanup_errors=True) as place:
        open_the_way(Path(place))
        for name in names:
            print(f"{name} … (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
            try:
                found[name] = await MEASUREMENTS[name](Path(place).resolve() / name, pace)
            except BenchError as error:
                print(f"{name}: {error}", file=sys.stderr)
    return found


def _json(figures: list[Figure]) -> str:
    told = [msgspec.to_builtins(f) | {"ratio": f.ratio, "reached": f.reached} for f in figures]
    return msgspec.json.encode(told).decode()


if __name__ == "__main__":
    sys.exit(main())
