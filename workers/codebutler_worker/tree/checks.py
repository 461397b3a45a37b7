"""Which command checks a repository: the configured one, else what its files suggest. Reads, runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from codebutler_worker.sandbox.destinations import read_regular, status_beneath

LIMIT_BYTES = 2**20
_TARGET = re.compile(r"^(check|test)\s*:(?![:=])", re.MULTILINE)
NPM_PLACEHOLDER = "no test specified"


def checks_command(configured: str, repo: Path) -> str | None:
    """The command for a shell, None if the command is empty."""
    if configured.strip():
        return configured.strip()
    return next((found for look in _LOOKS if (found := look(repo))), None)


def _make(repo: Path) -> str | None:
    text = next((text for name in ("GNUmakefile", "makefile", "Makefile") if (text := _read(repo, name))), "")
    targets = set(_TARGET.findall(text))
    return next((f"make {target}" for target in ("check", "test") if target in targets), None)


def _npm(repo: Path) -> str | None:
    try:
        scripts = json.loads(_read(repo, "package.json") or "{}").get("scripts", {})
        test = scripts.get("test", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    return "npm test" if isinstance(test, str) and test and NPM_PLACEHOLDER not in test else None


def _pytest(repo: Path) -> str | None:
    configured = "[tool.pytest" in _read(repo, "pyproject.toml") or "[tool:pytest]" in _read(
        repo, "setup.cfg"
    )
    if not (configured or _is_there(repo, "pytest.ini") or _is_there(repo, "tests/conftest.py")):
        return None
    own = ".venv/bin/python"
    return f"{own if _is_there(repo, '.venv/bin') else 'python3'} -m pytest"


def _cargo(repo: Path) -> str | None:
    return "cargo test" if _is_there(repo, "Cargo.toml") else None


def _go(repo: Path) -> str | None:
    return "go test ./..." if _is_there(repo, "go.mod") else None


_LOOKS: tuple[Callable[[Path], str | None], ...] = (_make, _npm, _pytest, _cargo, _go)


def _read(repo: Path, name: str) -> str:
    """The file's text; "" if there is none, or it is no plain file of a reasonable size."""
    try:
        return read_regular(repo, name, LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_there(repo: Path, name: str) -> bool:
    try:
        return status_beneath(repo, name) is not None
    except OSError:
        return False
