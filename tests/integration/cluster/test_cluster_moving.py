"""`!move` over a real NATS server: nothing is lost, doubled or reordered, whoever dies in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.chats import SlackSection
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import said
from codebutler.domain.model import Command, MessagePosted, Post
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.intake.records import Entry
from codebutler.intake.repos import RepoTable, Served
from codebutler.observe.chain import AuditAct
from codebutler.parent.moving import MoveMeans, RepoMoves
from codebutler.parent.parts import Reloads, adopt
from codebutler.platform.tasks import beside
from codebutler.protocol.messages import Deliver, Heartbeat, Send
from codebutler.schedule.commands import Asker
from tests.natsserver import NatsServer, nats_server
from tests.seam import DEADLINE_S, Gateway, Host, gateway, host, remote, until
from tests.shown import text_of
from tests.workers.services import entry

FOR_ANA = Config(slack=SlackSection(allowed_users=("U01",)))
MOVED = "`shop` is now served by tower."


class Lead:
    """A gateway that leads, with a registry of its own. ``stuck`` never ends: the reload, or a post in the chat."""

    def __init__(self, opened: Gateway, registry: Registry, stuck: str) -> None:
        self.opened = opened
        self.registry = registry
        self.posts: list[str] = []
        self.acts: list[AuditAct] = []
        self.reloads = Reloads()
        self._stuck = stuck
        self.moves = RepoMoves(
            MoveMeans(
                registry=registry,
                notes=opened.notes,
                table=self._table,
                workers=opened.hosts,
                reloads=self.reloads,
                publish=self._publish,
                audit=self.acts.append,
                clock=SystemClock(),
            )
        )

    @property
    def at(self) -> str:
        return self.registry.load()[0].host

    def _table(self) -> RepoTable:
        return RepoTable(tuple(Served(each, FOR_ANA, (), trusted=True) for each in self.registry.load()))

    async def reload(self) -> None:
        if self._stuck == "reload":
            await asyncio.Event().wait()
        self.opened.hosts.reconfigure(remote(host=self.at))

    async def _publish(self, channel: ConversationRef, key: str, post: Post, unsure: bool) -> MessageRef:
        text = text_of(post)
        if self._stuck == "publish" and MOVED in text:
            await asyncio.Event().wait()
        self.posts.append(text)
        return MessageRef(key)

    async def say(self, argument: str, key: str = "k1", user: str = "U01") -> str:
        asker = Asker(user=user, repo="shop", channel="C01", thread="1.0", key=key)
        return await self.moves.answer(argument, asker)

    def deliver(self, first: int, last: int) -> None:
        for seq in range(first, last + 1):
            self.opened.hosts.deliver(entry(seq, f"message {seq}"))


@asynccontextmanager
async def leading(server: NatsServer, home: Path, stuck: str = "") -> AsyncIterator[Lead]:
    """Its registry has what was registered once: the repository is on the laptop."""
    registry = Registry(Home(home).ensure())
    if not registry.load():
        registry.update(lambda _: (RepoEntry(name="shop", path="laptop:shop", channel_id="C01"),))
    async with gateway(server, ttl_s=60) as opened:
        await adopt(registry, opened.notes)
        lead = Lead(opened, registry, stuck)
        opened.hosts.add(remote(host=lead.at))
        await lead.moves.resume()
        async with beside(lead.reloads.serve(lead.reload), name="reloads"):
            yield lead
            await lead.moves.close()


def texts(first: int, last: int) -> list[str]:
    return [f"message {seq}" for seq in range(first, last + 1)]


async def knows(lead: Lead, *hosts: str) -> None:
    """Both have said what they have."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            told = await lead.opened.hosts.cluster()
            if all(any(each.name == host and each.has for each in told.hosts) for host in hosts):
                return
            await asyncio.sleep(0.05)


async def busy(lead: Lead, here: Host, **load: int) -> None:
    """Its worker says so, and the gateway knows it."""
    worker = await here.spawner.worker()
    worker.load = Heartbeat(**load)
    await until(lambda: lead.opened.hosts.rows()[0].turns.running == load.get("running", 0))


@pytest.mark.timeout(120)
async def test_what_runs_ends_first_and_what_is_new_waits_for_the_new_host(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        leading(server, tmp_path / "gateway") as lead,
        host(server) as laptop,
        host(server, "tower") as tower,
    ):
        lead.deliver(1, 5)
        await until(lambda: laptop.taken("message 5"))
        await knows(lead, "laptop", "tower")
        assert await lead.say("") == (
            "`shop` is on laptop. `!move HOST` moves it.\n• laptop: has it now\n• tower: also has it"
        )
        await busy(lead, laptop, running=1)
        assert "Moving `shop` from laptop to tower" in await lead.say("tower")
        lead.deliver(6, 10)
        stop = entry(11, "!stop")
        lead.opened.hosts.deliver(Entry(11, "C01", stop.event, Command(name="stop"), stop.received_at))
        await until(lambda: laptop.taken("!stop"))
        assert "1 running, 0 waiting, 0 queued. New messages wait for tower" in lead.posts[0]
        assert lead.at == "laptop"
        (await laptop.spawner.worker()).load = Heartbeat()
        await until(lambda: tower.taken("message 10"))
        assert laptop.spawner.disk().texts == [*texts(1, 5), "!stop"]
        assert tower.spawner.disk().texts == texts(6, 10)
        await until(lambda: sorted(lead.opened.services.settled) == list(range(1, 12)))
        assert lead.posts[1].startswith(
            f"{MOVED} Sessions, the history of runs and uncommitted work stay on laptop"
        )
        assert lead.at == "tower"
        assert [(act.kind, act.user, act.text) for act in lead.acts] == [
            ("moved", "U01", "shop: laptop to tower")
        ]
        lead.deliver(12, 12)
        await until(lambda: tower.taken("message 12"))
        assert await lead.say("tower", "k2") == "`shop` is already on tower."


@pytest.mark.timeout(180)
@pytest.mark.parametrize("stuck", ["ending", "reload", "publish"])
async def test_a_gateway_dies_in_the_middle_and_the_next_one_goes_on(tmp_path: Path, stuck: str) -> None:
    async with nats_server(tmp_path) as server, AsyncExitStack() as later:
        async with leading(server, tmp_path / "gateway", stuck) as first:
            laptop = await later.enter_async_context(host(server))
            tower = await later.enter_async_context(host(server, "tower"))
            first.deliver(1, 5)
            await until(lambda: laptop.taken("message 5"))
            await knows(first, "laptop", "tower")
            if stuck == "ending":
                await busy(first, laptop, running=1)
            await first.say("tower")
            first.deliver(6, 10)
            worker = await laptop.spawner.worker()
            if stuck == "reload":
                await until(lambda: first.at == "tower")
            elif stuck == "publish":
                await tower.spawner.worker()
                async with asyncio.timeout(DEADLINE_S):
                    while await first.opened.hosts._bus.last_delivered("CB_IN_laptop", "ev_shop"):  # noqa: ASYNC110 - NATS tells nobody
                        await asyncio.sleep(0.05)
            assert sorted(first.opened.services.settled) == [1, 2, 3, 4, 5]
        async with leading(server, tmp_path / "standby") as second:
            second.deliver(6, 12)  # its journal has what was not settled
            worker.load = Heartbeat()
            await until(lambda: tower.taken("message 12"), within_s=60)
            assert tower.spawner.disk().texts == texts(6, 12)
            assert laptop.spawner.disk().texts == texts(1, 5)
            assert [each for each in second.posts if MOVED in each]
            assert second.at == "tower"
            await until(lambda: sorted(second.opened.services.settled) == list(range(6, 13)))
        await later.aclose()


@pytest.mark.timeout(120)
async def test_from_a_host_that_is_away_it_moves_by_force_and_that_one_is_fenced(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        leading(server, tmp_path / "gateway") as lead,
        host(server, "tower") as tower,
        host(server) as laptop,
    ):
        lead.deliver(1, 1)
        await until(lambda: laptop.taken("message 1"))
        await knows(lead, "laptop", "tower")
        laptop.spawner.disk().is_full = True
        lead.deliver(2, 4)
        await until(lambda: len(laptop.spawner.disk().deliveries) == 2)
        laptop.running.cancel()  # it sleeps, with its worker
        await asyncio.gather(laptop.running, return_exceptions=True)
        await until(lambda: lead.opened.hosts.down("shop"))
        refused = await lead.say("tower")
        assert "laptop has been away since" in refused
        assert "`!move tower force` does not wait for it" in refused
        await lead.say("tower --force", "k2")
        await until(lambda: tower.taken("message 4"))
        lead.deliver(5, 5)
        await until(lambda: tower.taken("message 5"))
        assert tower.spawner.disk().texts == texts(2, 5)
        assert laptop.spawner.disk().texts == texts(1, 1)
        came = [each.event for each in (await tower.spawner.worker()).heard if isinstance(each, Deliver)]
        # The laptop may have stored that one: somebody is asked.
        assert [each.handled for each in came if isinstance(each, MessagePosted)] == [
            "maybe",
            "no",
            "no",
            "no",
        ]
        await until(
            lambda: [each for each in lead.posts if "had accepted and not finished stays there" in each]
        )
        sent = list(lead.opened.services.sent)
        (await laptop.spawner.worker()).say(Send(op_id="late", operation=Post(message=said("too late"))))
        async with host(server, spawner=laptop.spawner):  # it wakes, and is told of no repository
            await knows(lead, "laptop")
            lead.deliver(6, 6)
            await until(lambda: tower.taken("message 6"))
        assert [each for each in lead.opened.services.sent if each not in sent] == []
        assert laptop.spawner.disk().texts == texts(1, 1)


@pytest.mark.timeout(120)
async def test_it_stays_if_that_is_said_in_time(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        leading(server, tmp_path / "gateway") as lead,
        host(server) as laptop,
        host(server, "tower") as tower,
    ):
        await laptop.spawner.worker()
        await knows(lead, "laptop", "tower")
        await busy(lead, laptop, running=1)
        await lead.say("tower")
        lead.deliver(1, 3)
        assert "is already being moved to tower: `!move laptop` keeps it" in await lead.say("desk", "k2")
        assert await lead.say("laptop", "k3") == "`shop` stays on laptop."
        await until(lambda: laptop.taken("message 3"))
        assert (lead.at, tower.spawner.disk().texts) == ("laptop", [])


async def test_a_move_that_cannot_be_is_refused_in_a_line(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        leading(server, tmp_path / "gateway") as lead,
        host(server) as laptop,
        host(server, "tower"),
    ):
        await laptop.spawner.worker()
        await knows(lead, "laptop", "tower")
        assert "You are not authorized" in await lead.say("tower", user="U99")
        assert await lead.say("laptop") == "`shop` is already on laptop."
        assert await lead.say("desk") == "Unknown host desk. Known hosts: laptop, tower."
        beat = replace(lead.opened.hosts._fleet._heartbeats["tower"], has=("tools",))
        lead.opened.hosts._fleet.on_heartbeat("tower", beat, ())
        assert (
            "tower has no repository named `shop`: run `codebutler add-repo PATH --name shop`"
            in await lead.say("tower")
        )
        lead.opened.authority.hosts.mark_left("tower")
        assert "tower has been away since 20" in await lead.say("tower")
        assert lead.posts == []


async def test_what_somebody_registers_by_hand_counts_for_all_gateways(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        async with leading(server, tmp_path / "gateway") as lead, host(server), host(server, "tower"):
            await knows(lead, "laptop", "tower")
            await lead.say("tower force")
            await until(lambda: [each for each in lead.posts if MOVED in each])
            lead.registry.update(lambda entries: (replace(entries[0], path="laptop:shop"),))
            await lead.moves.registered()
        async with leading(server, tmp_path / "gateway") as again:
            assert again.at == "laptop"
