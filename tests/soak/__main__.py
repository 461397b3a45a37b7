"""`python -m tests.soak [--minutes N]`: a soak and its table; exit 1 if anything was lost, doubled or left."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.soak.plan import Plan
from tests.soak.report import report
from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--repos", type=int, default=Plan.repos)
    parser.add_argument("--seed", type=int, default=0, help="the same people and faults again")
    parser.add_argument("--pause", type=float, default=Plan.pause_s, help="seconds a person thinks")
    parser.add_argument("--faults", type=float, default=Plan.fault_s, help="seconds between faults")
    given = parser.parse_args()
    plan = replace(
        Plan(),
        seconds=given.minutes * 60,
        repos=given.repos,
        seed=given.seed,
        pause_s=given.pause,
        fault_s=given.faults,
    )
    place = Path(tempfile.mkdtemp(prefix="cb-soak-")).resolve()
    outcome = asyncio.run(soak(plan, place))
    sys.stdout.write(f"{report(outcome)}\n")
    if outcome.ok:
        shutil.rmtree(place, ignore_errors=True)
        return 0
    (place / "supervise.log").write_text(outcome.log)
    sys.stdout.write(f"its files are kept in {place}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
