"""`make run` on a machine that is not ready for it: a line that says what to do, and a second try that works."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import require

ROOT = Path(__file__).parents[2]
# Of the right age; makes an environment whose pip installs anything, and notes what it was asked for.
PYTHON = """#!/bin/sh
echo "$@" >> asked
case "$1" in -m) mkdir -p .venv/bin; printf '#!/bin/sh\\n' | tee .venv/bin/pip .venv/bin/python > .venv/bin/codebutler
chmod +x .venv/bin/* ;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(checkout: Path, python: str) -> subprocess.CompletedProcess[str]:
    (checkout / "python").write_text(python)
    (checkout / "python").chmod(0o755)
    words = (require("make"), "run", "PYTHON=./python")
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True)


def test_an_old_python_is_named_before_anything_is_made(checkout: Path) -> None:
    done = run(checkout, "#!/bin/sh\nexit 1\n")

    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert "make run PYTHON=python3.12" in done.stderr
    assert not (checkout / ".venv").exists()


def test_half_an_environment_is_made_anew(checkout: Path) -> None:
    # What `python3 -m venv` leaves where Debian's python3-venv is missing: an interpreter without pip.
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").touch(0o755)

    done = run(checkout, PYTHON)

    assert done.returncode == 0, done.stderr
    assert "-m venv --clear .venv" in (checkout / "asked").read_text()


def test_an_environment_that_is_there_is_used(checkout: Path) -> None:
    assert run(checkout, PYTHON).returncode == 0
    (checkout / "asked").unlink()
    (checkout / ".venv" / ".product").unlink()

    assert run(checkout, PYTHON).returncode == 0
    assert not (checkout / "asked").exists()
