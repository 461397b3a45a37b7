"""Kimi Code's own record of a session, as a file in a directory that the agent may write; and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from codebutler_worker.agents.acp.kimi import account, length

WIRE = Path(__file__).parents[2] / "golden" / "kimi" / "wire.jsonl"
TITLE, LOGIN = "Kimi Code", "log in."


def test_the_record_is_read_from_where_the_turn_began(tmp_path: Path) -> None:
    lines = WIRE.read_bytes().splitlines(keepends=True)
    begins = [at for at, line in enumerate(lines) if b'"turn.prompt"' in line]
    first, last = b"".join(lines[: begins[1]]), b"".join(lines[begins[-1] :])
    (tmp_path / "wire.jsonl").write_bytes(first + last)
    assert length(tmp_path, "wire.jsonl") == len(first + last)
    found = account(tmp_path, "wire.jsonl", len(first), TITLE, LOGIN)
    assert found is not None
    assert (found.failure, found.turns) == (None, 4)


def test_a_record_that_is_none_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(WIRE.read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "directory").mkdir()
    for name in ("link", "directory", "missing", "", "../real"):
        assert account(tmp_path, name, 0, TITLE, LOGIN) is None
        assert length(tmp_path, name) == 0


def test_a_worker_loads_the_protocol_for_a_turn_only() -> None:
    """Its library takes 20 MB, twice what a worker may."""
    modules = "codebutler_worker.worker.bootstrap, codebutler_worker.agents.acp.backend"
    look = f"import sys, {modules}; print('acp' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
