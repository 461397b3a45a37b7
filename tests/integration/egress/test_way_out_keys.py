"""The key that is added outside the walls: only for its service, and never shown inside."""

from __future__ import annotations

import pytest

from codebutler_worker.egress.proxy import Rules
from codebutler_worker.sandbox.port import SandboxPolicy
from tests.integration.egress.outside import (
    KEY,
    TOKEN,
    Egress,
    Internet,
    egress,
    inside,
    internet,
    policy,
    service,
)

__all__ = ["egress", "internet", "policy"]


async def test_the_key_is_added_outside(egress: Egress, internet: Internet, policy: SandboxPolicy) -> None:
    served = service(internet)
    async with await egress.open(Rules(service=served), "hosts") as access:
        url = f"{served.inside(access.port)}/v1/messages"
        code, said = await inside(access, policy, f"curl -sS {url} -H 'X-Api-Key: {TOKEN}' -d hello; env")
    assert code == 0
    assert said.startswith("POST /gateway/v1/messages 5 bytes")
    assert internet.seen[0].headers.getall("X-Api-Key") == [KEY]
    assert internet.seen[0].headers["X-Team"] == "a"
    assert KEY not in said


@pytest.mark.parametrize(
    "headers",
    ["-H 'x-api-key: sk-of-an-attacker'", f"-H 'x-api-key: {TOKEN}' -H 'Authorization: Bearer sk-evil'"],
)
async def test_nobody_elses_key_gets_out(
    egress: Egress, internet: Internet, policy: SandboxPolicy, headers: str
) -> None:
    served = service(internet)
    async with await egress.open(Rules(service=served), "hosts") as access:
        _, said = await inside(
            access, policy, f"curl -sS {served.inside(access.port)}/v1/files {headers} -d secret"
        )
    assert internet.seen == []
    assert "another key may not be used" in said


async def test_a_service_that_repeats_what_it_was_asked_does_not_tell_the_key(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    served = service(internet)
    async with await egress.open(Rules(service=served), "hosts") as access:
        ask = f"curl -sS --compressed -H 'X-Api-Key: {TOKEN}' {served.inside(access.port)}/echo"
        code, both = await inside(access, policy, f"{ask} && echo && {ask} -X TRACE")
    said, traced = both.split("\n", 1)
    assert internet.seen[0].headers["X-Api-Key"] == KEY
    assert (code, "x" * len(KEY) in said, KEY in said) == (0, True, False)
    assert traced == "CodeButler's proxy: no TRACE here\n"
    assert len(internet.seen) == 1


async def test_only_the_services_own_paths_are_there(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    served = service(internet)
    async with await egress.open(Rules(service=served), "hosts") as access:
        _, said = await inside(
            access, policy, f"curl -sS http://127.0.0.1:{access.port}/admin -H 'x-api-key: {TOKEN}'"
        )
    assert internet.seen == []
    assert "nothing at this address" in said


async def test_with_an_open_network_the_key_is_added_outside_too(
    egress: Egress, internet: Internet, policy: SandboxPolicy
) -> None:
    served = service(internet)
    async with await egress.open(Rules(service=served), "open") as access:
        assert access.network == "open"
        url = f"{served.inside(access.port)}/v1/x"
        good = await inside(access, policy, f"curl -sS {url} -H 'x-api-key: {TOKEN}'")
        bad = await inside(access, policy, f"curl -sS {url} -H 'x-api-key: guessed'")
    assert good == (0, "GET /gateway/v1/x 0 bytes")
    assert "another key may not be used" in bad[1]
    assert len(internet.seen) == 1
