"""Build the wheel, install it in a fresh environment away from the checkout, and try it there.

Run by `make wheel-check`. Exits with 1 and a line for everything that is missing or too much.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("probe.py")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="codebutler-wheel-") as scratch:
        work = Path(scratch)
        wheel = _build(work)
        python = _install(wheel, work / "venv")
        done = subprocess.run([python, "-I", PROBE, python.parent / "codebutler"], cwd=work)
        return done.returncode


def _build(work: Path) -> Path:
    command: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--outdir", work / "dist", ROOT]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next((work / "dist").glob("*.whl"))


def _install(wheel: Path, place: Path) -> Path:
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
