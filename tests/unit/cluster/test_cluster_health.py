"""What `doctor` says of a cluster's servers and streams, each with what to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codebutler.cluster.health import ServerFacts, StreamFacts, judge_servers, judge_streams
from codebutler.protocol.messages import Finding

WELL = ServerFacts(
    name="n1", version="2.15.1", clock_ahead_s=0.02, max_payload_bytes=8 * 2**20, is_synced=True
)
KEPT = StreamFacts(name="CB_IN_laptop", replicas=3)


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.level, each.subject) for each in findings]


def test_three_servers_that_are_well() -> None:
    found = [replace(WELL, name=name) for name in ("n1", "n2", "n3")]
    assert told(list(judge_servers(found, 3))) == [("ok", "n1"), ("ok", "n2"), ("ok", "n3")]
    assert told(list(judge_streams([KEPT, KEPT], 3, 3))) == [("ok", "streams")]


@pytest.mark.parametrize(
    ("change", "level", "what"),
    [
        ({"version": "2.10.9"}, "FAIL", "2.10.9 is too old: use 2.12.3"),
        ({"version": "2.13.0-beta.1"}, "ok", ""),
        ({"version": "2.9"}, "FAIL", "too old"),
        ({"max_payload_bytes": 2**20}, "FAIL", "max_payload is 1048576: set it to 8388608"),
        ({"is_synced": False}, "FAIL", "set `sync_interval: always`"),
        ({"missing_data": "JetStream is still recovering meta layer"}, "warn", "does not have all data yet"),
        ({"clock_ahead_s": -61.0}, "warn", "61 s behind this machine's: synchronise both with NTP"),
        ({"clock_ahead_s": 3.0}, "warn", "3 s ahead of"),
        ({"clock_ahead_s": 1.0}, "ok", ""),
    ],
)
def test_a_server_that_is_not(change: dict[str, object], level: str, what: str) -> None:
    [finding] = judge_servers([replace(WELL, **change)], 1)  # type: ignore[arg-type]
    assert finding.level == level
    assert what in finding.text


def test_servers_that_do_not_answer() -> None:
    first, *_ = judge_servers([WELL], 3)
    assert (first.level, first.text) == (
        "warn", "1 of 3 answer (n1): start the others, or see their logs"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "level", "what"),
    [
        ({"replicas": 1}, "FAIL", "kept on 1 of 3 servers: restart the gateway"),
        ({"has_leader": False, "behind": ("n2", "n3")}, "FAIL", "accepts nothing"),
        ({"behind": ("n3",)}, "warn", "not complete on n3"),
        ({"behind": ("another server",)}, "warn", "not complete on another server"),
    ],
)
def test_a_stream_that_could_be_lost(change: dict[str, object], level: str, what: str) -> None:
    [finding] = judge_streams([KEPT, replace(KEPT, **change)], 3, 3)  # type: ignore[arg-type]
    assert finding.level == level
    assert what in finding.text


def test_too_few_copies_and_nothing_kept() -> None:
    few, none = judge_streams([], 1, 3)
    assert 'set "replicas": 3 in cluster.json' in few.text
    assert "codebutler gateway" in none.text
    assert told(list(judge_streams([replace(KEPT, replicas=1)], 1, 1))) == [("ok", "streams")]
