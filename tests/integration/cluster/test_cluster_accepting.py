"""What a gateway has accepted is on the servers' disks: its own may be lost, and whoever leads next goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from codebutler.cluster.buckets import KeyBucket
from codebutler.cluster.journal import MAX_ACCEPTED_BYTES, OVERLAP_S, GatewayJournal
from codebutler.cluster.membership import ACCEPTED_BUCKET
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.intake.records import Entry
from tests.clock import ManualClock
from tests.natsserver import NatsCluster, NatsServer, Servers, bus, nats_cluster, nats_server
from tests.seam import DEADLINE_S
from tests.workers.services import entry

SLACK_WAITS_S = 3.0
CHANNEL = entry(1, "hello").channel


class Disk:
    """One gateway's: its journal, once it leads."""

    def __init__(self, path: Path, bucket: KeyBucket) -> None:
        self._path = path
        self._bucket = bucket
        self.is_held = True

    def open(self) -> GatewayJournal:
        return GatewayJournal(self._bucket, lambda: self.is_held, self._path, SystemClock())


@asynccontextmanager
async def disk(server: Servers, path: Path) -> AsyncIterator[Disk]:
    async with bus(server) as connected:
        yield Disk(path, await connected.bucket(ACCEPTED_BUCKET, max_bytes=MAX_ACCEPTED_BYTES))


async def taken(journal: GatewayJournal, said: Entry) -> Entry:
    found = await journal.append(said.event, said.request)
    assert found is not None
    return found


def texts(entries: list[Entry]) -> list[str]:
    return [getattr(each.event, "text", "") for each in entries]


async def settled(bucket: KeyBucket) -> None:
    """The servers know of no event that is not settled."""
    async with asyncio.timeout(DEADLINE_S):
        while any('"taken"' in value for value in (await bucket.all(0)).values()):  # noqa: ASYNC110 - a server's
            await asyncio.sleep(0.02)


async def test_what_was_accepted_outlives_the_gateway_with_its_disk(tmp_path: Path) -> None:
    messages = [entry(number, f"message {number}") for number in range(1, 41)]
    async with nats_server(tmp_path) as server, disk(server, tmp_path / "lost.db") as first:
        lost = first.open()
        async with lost:
            kept = [await taken(lost, each) for each in messages]
            for each in kept[:10]:
                await lost.settle(each.seq)
        async with disk(server, tmp_path / "other.db") as second, second.open() as journal:
            assert texts(await journal.pending()) == [f"message {number}" for number in range(11, 41)]
            again = [await journal.append(each.event, each.request) for each in messages]
            assert again == [None] * 40
            new = await taken(journal, entry(41, "message 41"))
            assert (new.received_at - kept[0].received_at).total_seconds() < DEADLINE_S


async def test_a_gateway_that_led_before_does_not_repeat_what_another_has_settled(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, disk(server, tmp_path / "one.db") as one:
        async with one.open() as journal:
            await taken(journal, entry(1, "done by the other"))
            await taken(journal, entry(2, "still open"))
        async with disk(server, tmp_path / "two.db") as two, two.open() as journal:
            done, _ = await journal.pending()
            await journal.settle(done.seq)
        async with one.open() as journal:
            assert texts(await journal.pending()) == ["still open"]


async def test_nats_that_does_not_answer_is_told_in_time_and_the_event_is_taken_later(tmp_path: Path) -> None:
    said = entry(1, "hello")
    async with (
        nats_server(tmp_path) as server,
        disk(server, tmp_path / "one.db") as one,
        one.open() as journal,
    ):
        await taken(journal, entry(2, "before"))
        await server.kill()
        async with asyncio.timeout(SLACK_WAITS_S):
            with pytest.raises(StoreError, match="do not answer"):
                await journal.append(said.event, said.request)
        assert "do not answer" in journal.trouble
        news = asyncio.create_task(journal.news())
        await server.start()
        async with asyncio.timeout(DEADLINE_S):
            assert "fetching refused events" in await news
        assert journal.trouble == ""
        await taken(journal, said)
        assert await journal.append(said.event, said.request) is None


async def test_an_event_that_the_servers_still_write_is_no_duplicate(tmp_path: Path) -> None:
    """The leader of the bucket refuses to begin what it has begun to write, and does not show it before a second server
    has it, too."""
    said = entry(1, "hello")
    async with (
        nats_cluster(tmp_path) as servers,
        disk(servers, tmp_path / "one.db") as one,
        one.open() as journal,
    ):
        await taken(journal, entry(2, "before"))
        others = await followers(servers, f"KV_{ACCEPTED_BUCKET}")
        for each in others:
            each.pause()
        for _ in range(2):
            with pytest.raises(StoreError, match="do not answer"):
                await journal.append(said.event, said.request)
        for each in others:
            each.resume()
        found: Entry | None = None
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(StoreError):
                    found = await journal.append(said.event, said.request)
                    break
        assert found is not None
        assert texts(await journal.pending()) == ["before", "hello"]


async def followers(servers: NatsCluster, stream: str) -> list[NatsServer]:
    """All but the one that leads the stream."""
    async with bus(servers) as connected:
        info = await connected._jetstream.stream_info(stream)
    assert info.cluster is not None
    return [each for each in servers.servers if each.name != info.cluster.leader]


async def test_many_events_of_one_channel_do_not_wait_for_each_other_in_vain(tmp_path: Path) -> None:
    """Each is refused in time, also behind others."""
    async with (
        nats_server(tmp_path) as server,
        disk(server, tmp_path / "one.db") as one,
        one.open() as journal,
    ):
        await server.kill()
        messages = [entry(number, f"message {number}") for number in range(1, 21)]
        async with asyncio.timeout(SLACK_WAITS_S):
            came = await asyncio.gather(
                *(journal.append(each.event, each.request) for each in messages), return_exceptions=True
            )
        assert all(isinstance(each, StoreError) for each in came)


async def test_a_gateway_that_leads_no_more_accepts_nothing_and_the_next_one_does(tmp_path: Path) -> None:
    said = entry(1, "hello")
    async with (
        nats_server(tmp_path) as server,
        disk(server, tmp_path / "one.db") as one,
        one.open() as journal,
        disk(server, tmp_path / "two.db") as two,
        two.open() as leader,
    ):
        assert await leader.pending() == []
        one.is_held = False
        with pytest.raises(StoreError, match="another gateway is active"):
            await journal.append(said.event, said.request)
        await taken(leader, said)
        assert await leader.append(said.event, said.request) is None


async def test_what_somebody_had_stored_in_an_events_place_does_not_count(tmp_path: Path) -> None:
    said = entry(1, "hello")
    async with nats_server(tmp_path) as server, disk(server, tmp_path / "one.db") as one:
        bucket = one._bucket
        async with one.open() as journal:
            await taken(journal, said)
            (key,) = [key for key, value in (await bucket.all(0)).items() if '"taken"' in value]
        await bucket.set(key, '{"type":"event"}')
        async with disk(server, tmp_path / "two.db") as two, two.open() as journal:
            assert await journal.pending() == []
            await taken(journal, said)
        async with disk(server, tmp_path / "three.db") as three, three.open() as journal:
            assert texts(await journal.pending()) == ["hello"]


async def test_order_within_a_channel_is_kept_through_the_death_of_the_gateway(tmp_path: Path) -> None:
    messages = [entry(number, f"message {number}") for number in range(1, 101)]
    async with nats_server(tmp_path) as server, disk(server, tmp_path / "one.db") as one:
        async with one.open() as journal:
            await asyncio.gather(*(journal.append(each.event, each.request) for each in messages))
        async with disk(server, tmp_path / "two.db") as two, two.open() as journal:
            assert texts(await journal.pending()) == [f"message {number}" for number in range(1, 101)]


async def test_settled_events_need_no_space_for_long(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        disk(server, tmp_path / "one.db") as one,
        one.open() as journal,
    ):
        found = [await taken(journal, entry(number, "x" * 1000)) for number in range(1, 31)]
        for each in found:
            await journal.settle(each.seq)
        await settled(one._bucket)


async def test_notes_and_the_place_in_the_history_are_the_next_gateways(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with nats_server(tmp_path) as server, disk(server, tmp_path / "one.db") as one:
        async with one.open() as journal:
            await journal.open_gaps([CHANNEL], now - timedelta(minutes=10))
            await journal.keep_note("schedule", "ran at noon")
            await journal.keep_note("sent:C1:op1", "done 1.0")
            await Positions(one._bucket).next()
        async with disk(server, tmp_path / "two.db") as two, two.open() as journal:
            assert await journal.note("schedule") == "ran at noon"
            assert await journal.note("sent:C1:op1") == ""
            await journal.open_gaps([CHANNEL], now)
            gap = await journal.gap(CHANNEL)
            assert gap is not None
            assert abs(gap.since_s - (now - timedelta(minutes=10)).timestamp()) < 1


async def test_before_the_gaps_are_open_the_place_stays_where_the_last_gateway_was(tmp_path: Path) -> None:
    """A chat that cannot be reached opens none: a gateway that ends meanwhile has accepted nothing of what was said."""
    async with nats_server(tmp_path) as server, bus(server) as connected:
        clock, bucket = ManualClock(), await connected.bucket(ACCEPTED_BUCKET, max_bytes=MAX_ACCEPTED_BYTES)
        positions = Positions(bucket)
        async with GatewayJournal(bucket, lambda: True, tmp_path / "one.db", clock) as journal:
            await journal.open_gaps([CHANNEL], clock.now())
            await journal.close_gap(CHANNEL)
            began_s = clock.now().timestamp()
            assert await positions.next() == began_s
            await clock.advance(30)
            assert await positions.next() == began_s  # what was said before is for nobody
            await clock.advance(60)
            await positions.next()
            await clock.advance(5)
            reached_s = await positions.next()
            assert began_s < reached_s < clock.now().timestamp()
        async with GatewayJournal(bucket, lambda: True, tmp_path / "two.db", clock) as journal:
            await journal.begin_channel("D1", clock.now())
            await clock.advance(600)
            await journal.settle((await taken(journal, entry(1, "hello"))).seq)
        async with GatewayJournal(bucket, lambda: True, tmp_path / "three.db", clock) as journal:
            await journal.open_gaps([CHANNEL], clock.now())
            gap = await journal.gap(CHANNEL)
            assert gap is not None
            assert gap.since_s == reached_s
            await journal.close_gap(CHANNEL)
            assert await positions.next() == reached_s
            await clock.advance(5)
            assert await positions.next() == clock.now().timestamp() - OVERLAP_S


class Positions:
    """Those that are kept in the bucket, one after the other."""

    def __init__(self, bucket: KeyBucket) -> None:
        self._bucket = bucket
        self._revision = 0

    async def next(self) -> float:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await self._bucket.get("position")
                if found is not None and found[1] != self._revision:
                    self._revision = found[1]
                    return float(found[0])
                await asyncio.sleep(0.02)  # NATS tells nobody


async def filled(journal: GatewayJournal) -> list[Entry]:
    """As many events as there is room for."""
    kept: list[Entry] = []
    for number in range(1, 100):
        said = entry(number, "x" * 5000)
        try:
            kept += [await taken(journal, said)]
        except StoreError:
            break
    return kept


async def test_a_full_disk_refuses_events_and_takes_them_once_others_are_settled(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as connected:
        bucket = await connected.bucket(ACCEPTED_BUCKET, max_bytes=100_000)
        async with Disk(tmp_path / "one.db", bucket).open() as journal:
            kept = await filled(journal)
            assert 0 < len(kept) < 100
            refused = entry(len(kept) + 1, "x" * 5000)
            for each in kept:
                await journal.settle(each.seq)
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    with contextlib.suppress(StoreError):
                        await taken(journal, refused)
                        break
                    await asyncio.sleep(0.1)
            assert await journal.append(kept[0].event, kept[0].request) is None
