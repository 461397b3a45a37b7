"""What import-linter cannot see: a package above one's own, imported by name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BY_NAME = re.compile(r"import_module\(\s*[^)]*\)|__import__\([^)]*\)")
KNOWN = [
    # The operator's commands, at rest: what agents keep by name, and an older store.
    ("codebutler/cli/memory.py", 'import_module("codebutler_worker.memory.learning")'),
    ("codebutler/cli/migrate.py", 'import_module("codebutler_worker.store.opening")'),
    # Alembic is loaded for an older journal alone.
    ("codebutler/intake/journal_file.py", 'import_module("codebutler_migrations.runner")'),
]


def test_nobody_else_imports_by_name() -> None:
    found = [
        (str(path.relative_to(ROOT)), call)
        for room in ("codebutler", "workers", "migrations")
        for path in sorted((ROOT / room).rglob("*.py"))
        for call in BY_NAME.findall(path.read_text())
        if "codebutler" in call
    ]
    assert found == KNOWN
