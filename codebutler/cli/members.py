"""Who belongs to a cluster: ``codebutler cluster create``, ``copy``, ``invite`` and ``remove``.

``codebutler allow`` and ``codebutler deny``: who may use the agents.
"""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from codebutler.chat.people import Person, named
from codebutler.chat.platform import Platform
from codebutler.chat.platforms import platforms
from codebutler.cli import config_files
from codebutler.cli.context import home, in_force, reload_supervisor
from codebutler.cli.output import notice, print_json, say, warn
from codebutler.cli.serve import need_cluster
from codebutler.cli.setup import nobody_allowed
from codebutler.cluster.membership import (
    GATEWAY,
    HOST_NAME,
    NAME,
    is_loopback,
    membership_of,
    read_membership,
    token_of,
    write_membership,
)
from codebutler.cluster.server import NatsNode
from codebutler.config.chats import PEOPLE, SECTIONS, ChatSection, section_of
from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatError, CodeButlerError, ConfigError

if TYPE_CHECKING:
    from codebutler.cluster.membership import ClusterMembership
    from codebutler.cluster.messages import HostRemoved


HOST = typer.Argument(help="The host's name: lower-case letters, digits and '-'.")
LOOPBACK = "127.0.0.1"
SERVER = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::([0-9]{1,5}))?")


def create(
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST[:PORT] at which other machines reach a NATS server; repeat for 3 or 5 servers."
        ),
    ] = None,
    directory: Annotated[str, typer.Option(help="Where a server keeps its data.")] = "data",
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="Also require client certificates signed by this authority (PEM).",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Create a cluster: its keys, this gateway's credential, and the configuration of its NATS servers."""
    need_cluster()
    from codebutler.cluster.authority import NAME as AUTHORITY
    from codebutler.cluster.authority import ClusterAuthority
    from codebutler.operations.nats_files import NatsFiles

    nodes = tuple(map(_node, server or [LOOPBACK]))
    if len(set(nodes)) != len(nodes) or len(nodes) not in (1, 3, 5):
        raise typer.BadParameter("--server: name one server, or 3 or 5 different ones")
    where = home().ensure()
    for each in (NAME, AUTHORITY):
        if (where.root / each).exists():
            raise ConfigError(f"{where.root / each} already exists: this home belongs to a cluster")
    client_pem = client_ca.read_bytes() if client_ca is not None else b""
    encrypted = bool(client_pem) or not all(is_loopback(each.host) for each in nodes)
    files = NatsFiles(where.root / "nats", nodes, encrypted=encrypted)
    urls = tuple(each.url(encrypted=encrypted) for each in nodes)
    authority = ClusterAuthority.new(urls, files.ca.decode())
    now_s = int(time.time())
    folders = files.write(authority.trust(now_s), directory, client_pem)
    with where.open() as opened:
        opened.write(AUTHORITY, msgspec.json.format(msgspec.json.encode(authority), indent=2))
    write_membership(where, authority.of_gateway(now_s))
    for node, folder in zip(nodes, folders, strict=True):
        place = "" if is_loopback(node.host) else f", on {node.host} (copy the folder there)"
        say(f"cd {folder} && nats-server -c nats.conf{place}")
    notice(
        "Next: start the servers like this, then `codebutler cluster invite HOST` for each machine. "
        f"Keep {AUTHORITY} here."
    )
    if client_pem:
        notice(f"Set clientCertificate and clientKey in {where.root / NAME}: this gateway needs them too.")


def invite(
    host: Annotated[str, HOST],
    replace: Annotated[bool, typer.Option("--replace", help="Replace its current credential.")] = False,
) -> None:
    """Let a machine join: print a one-line token for `codebutler host join`. The token is a secret, shown once."""
    need_cluster()
    _check(host)
    membership = asyncio.run(_invited(home(), host, replace=replace))
    say(token_of(membership))
    notice(
        f"Run `codebutler host join` on {host}, and paste this line there. It is not shown again. Whoever has it can "
        f"act as {host} until you run `codebutler cluster remove {host}`."
    )


async def _invited(where: Home, host: str, *, replace: bool) -> ClusterMembership:
    from codebutler.cluster.accounts import HostAccounts
    from codebutler.cluster.authority import read_authority

    authority, gateway = read_authority(where), read_membership(where, gateway=True)
    async with HostAccounts.opened(authority, gateway, SystemClock()) as accounts:
        if host in await accounts.hosts() and not replace:
            raise CodeButlerError(
                f"{host} already belongs to the cluster: add --replace to replace its credential, "
                "or choose another name"
            )
        await accounts.remove(host)
        return await accounts.invite(host)


def copy(
    old: Annotated[Path, typer.Argument(help="The gateway's previous cluster.json.")],
) -> None:
    """Copy our data from other NATS servers to this cluster's new ones, such as from one server to three."""
    need_cluster()
    from codebutler.cluster.moving import copied

    before, now = membership_of(old), read_membership(home(), gateway=True)
    found = asyncio.run(copied(before, now, SystemClock()))
    count = sum(found.values())
    streams = "one stream" if len(found) == 1 else f"{len(found)} streams"
    say(f"Copied {streams} with {count} {'message' if count == 1 else 'messages'}.")
    notice("Next: stop the old servers for good, invite each host again, and start the gateway.")


def remove(host: Annotated[str, HOST]) -> None:
    """Remove a machine: close its connection, refuse its credential, and drop the messages that wait for it."""
    need_cluster()
    _check(host)
    removed, is_announced = asyncio.run(_removed(home(), host))
    say(f"Removed {host}: it is disconnected, and its credential and its token are refused.")
    for repo, count in sorted(removed.waited.items()):
        say(f"{repo}: dropped {count} waiting {'message' if count == 1 else 'messages'}.")
    if removed.calls:
        say(f"Dropped {removed.calls} of its own messages, which had not been posted yet.")
    if not is_announced:
        warn("no gateway answered, so the channels of its repositories were not notified")
    notice("Its repositories stay registered here: move them, or run `codebutler remove-repo NAME`.")


async def _removed(where: Home, host: str) -> tuple[HostRemoved, bool]:
    """The lines about what was dropped, and whether the channels were notified."""
    from codebutler.cluster.accounts import PATIENCE_S, HostAccounts
    from codebutler.cluster.authority import read_authority
    from codebutler.cluster.bus import Bus
    from codebutler.cluster.moving import announced, emptied

    membership, clock = read_membership(where, gateway=True), SystemClock()
    async with HostAccounts.opened(read_authority(where), membership, clock) as accounts:
        if not await accounts.remove(host):
            names = ", ".join(await accounts.hosts()) or "none"
            raise CodeButlerError(f"no host named {host} belongs to the cluster (hosts: {names})")
    async with Bus.connected(membership, clock, PATIENCE_S) as bus:
        removed = await emptied(bus, host)
        return removed, await announced(bus, removed)


def _check(host: str) -> None:
    if not HOST_NAME.fullmatch(host) or host == GATEWAY:
        raise typer.BadParameter(f"{host} is not a valid host name: use lower-case letters, digits and '-'")


def _node(text: str) -> NatsNode:
    named = SERVER.fullmatch(text)
    if named is None:
        raise typer.BadParameter(f"--server: {text} is not HOST or HOST:PORT")
    return NatsNode(named[1], int(named[2])) if named[2] else NatsNode(named[1])


WHO = ", or ".join(each.person_words for each in SECTIONS)


def allow(
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER]", help=f"{WHO[0].upper()}{WHO[1:]}; without it, list them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print who is allowed as JSON.")] = False,
) -> None:
    """Allow people to use the agents, or list who may."""
    home().ensure()
    config = in_force().config
    for chat, wanted in _by_chat(users or []).items():
        added = asyncio.run(chat.find_people(config, wanted, warn))
        ids = [one.id for one in added]
        config_files.change(partial(config_files.allow, chat=chat.section, ids=ids), "allow")
        _tell("Allowed", added)
    if as_json or not users:
        _list(in_force().config, as_json=as_json)


def deny(
    users: Annotated[list[str], typer.Argument(metavar="USER", help=f"{WHO[0].upper()}{WHO[1:]}.")],
) -> None:
    """Remove people from the list of allowed users."""
    home().ensure()
    config = in_force().config
    gone = {
        chat: [_allowed_one(chat, config, user) for user in wanted]
        for chat, wanted in _by_chat(users).items()
    }
    for chat, people in gone.items():
        ids = [one.id for one in people]
        config_files.change(partial(config_files.deny, chat=chat.section, ids=ids), "deny")
    resolved = in_force()
    left = {each for chat in resolved.config.chats for each in chat.allowed_ids}
    everybody = [one for people in gone.values() for one in people]
    if still := [one for one in everybody if one.id in left]:
        key = _key(section_of(still[0].id))
        source = resolved.provenance[key]
        raise CodeButlerError(f"{named(still)} is still allowed: {source} overrides {key}, change it there")
    _tell("Denied", everybody)
    _warn_of_own_lists()
    if not left:
        notice("The list is now empty: nobody can use the agents.")


def _by_chat(users: list[str]) -> dict[Platform, list[str]]:
    """Which people to look for in which chat; names belong to the first chat that has names."""
    known = platforms()
    by_name = next(each for each in known if each.finds_people)
    found: dict[Platform, list[str]] = {}
    for user in users:
        chat = next((each for each in known if each.section.person_in(user)), by_name)
        found.setdefault(chat, []).append(user)
    return found


def _allowed_one(chat: Platform, config: Config, wanted: str) -> Person:
    """One of the allowed people; an ID needs no look-up. Raises CodeButlerError."""
    people, person_id = chat.section_in(config).allowed_ids, chat.section.person_in(wanted)
    if person_id in people:
        return Person(id=person_id, names=())
    if not person_id:
        person = asyncio.run(chat.find_people(config, [wanted], warn))[0]
        if person.id in people:
            return person
        wanted = str(person)
    raise CodeButlerError(f"{wanted} is not on the list: run `codebutler allow` to see it")


def _key(section: type[ChatSection]) -> str:
    return ".".join(section.path(PEOPLE))


def _known(chat: Platform, config: Config) -> list[Person]:
    try:
        return asyncio.run(chat.allowed(config))
    except ChatError as error:
        warn(f"cannot look up names: {error}")
        return [Person(id=user, names=()) for user in chat.section_in(config).allowed_ids]


def _list(config: Config, *, as_json: bool) -> None:
    known = [
        one for chat in platforms() if chat.section_in(config).allowed_ids for one in _known(chat, config)
    ]
    if as_json:
        print_json({"users": [{"id": one.id, "name": one.names[0] if one.names else ""} for one in known]})
        return
    for one in known:
        say(str(one))
    if not known:
        notice(nobody_allowed(config))


def _tell(done: str, who: list[Person]) -> None:
    for one in who:
        say(f"{done}: {one}")
    config_files.warn_of_overrides(in_force(), map(_key, SECTIONS))
    reload_supervisor()


def _warn_of_own_lists() -> None:
    """A trusted repository's own list replaces the one that was changed."""
    for entry in Registry(home()).load():
        key = _key(section_of(entry.channel_id))
        try:
            source = in_force(entry).provenance[key]
        except ConfigError:
            continue
        if source == str(RepoPaths(Path(entry.path)).config):
            warn(f"{entry.name} has its own list: see {key} in {source}")
