"""When a member is refused for good, and what it is told."""

from __future__ import annotations

import pytest

from codebutler.cluster.connection import REFUSALS, Rejections
from codebutler.cluster.membership import ClusterMembership

SERVERS = ("nats://a:4222", "nats://b:4222", "nats://c:4222")
TIMES = REFUSALS * len(SERVERS)


@pytest.mark.parametrize(
    ("told", "is_final"),
    [
        ("nats: 'Authorization Violation'", True),
        ("nats: 'User Authentication Revoked'", True),
        ("nats: 'Authentication Timeout'", False),
        ("nats: unexpected EOF", False),
    ],
)
async def test_a_refusal_by_each_server_again_is_final_and_a_busy_server_refuses_nobody(
    told: str, is_final: bool
) -> None:
    rejections = Rejections(ClusterMembership(servers=SERVERS, name="laptop"))
    for _ in range(TIMES - 1):
        await rejections.on_error(RuntimeError(told))
    assert not rejections.final.is_set()
    await rejections.on_error(RuntimeError(told))
    assert rejections.final.is_set() is is_final


async def test_a_server_that_takes_us_again_begins_the_count_anew() -> None:
    rejections = Rejections(ClusterMembership(servers=SERVERS, name="laptop"))
    for _ in range(2):
        for _ in range(TIMES - 1):
            await rejections.on_error(RuntimeError("Authorization Violation"))
        await rejections.on_reconnect()
    assert not rejections.final.is_set()


@pytest.mark.parametrize(
    ("name", "what"),
    [("laptop", "`codebutler host join`"), ("gateway", "`codebutler cluster create`")],
)
def test_who_is_refused_hears_what_to_do(name: str, what: str) -> None:
    error = Rejections(ClusterMembership(servers=SERVERS, name=name)).error
    assert what in str(error)
