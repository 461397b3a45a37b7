"""``cluster.json`` in the home: the NATS servers' addresses and our identity; and the token that carries them to
another machine.

It is a separate file, so that the configuration that workers get never holds the key.

The names of subjects, streams and consumers, and which of them a host may use. Pure.
"""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from codebutler.config.load import parse_as
from codebutler.config.paths import Home
from codebutler.domain.errors import ConfigError
from codebutler.platform.http import is_loopback

HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
LEADER_BUCKET = "CB_LEADER"
HOSTS_BUCKET = "CB_HOSTS"
NOTES_BUCKET = "CB_NOTES"
ACCEPTED_BUCKET = "CB_TAKEN"
ANSWERS = "answers"
REMOVALS = "cb.removed"
"""Where a command on the gateway's machine reports that it has removed a host. No host's account has this subject."""
GATEWAY = "gateway"
STAND_BY = "cb.standby"
"""Where a gateway reports that it stands by."""
HOST_SERVICES = (
    "cb.out.*.>",
    "cb.ask.*",
    "cb.news.*",
    "cb.told.*.>",
    "$JS.API.CONSUMER.MSG.NEXT.*.*",
    "$JS.ACK.>",
)
"""The subjects that the gateway's account offers to the hosts' accounts. Each host imports its part:
``host_services``."""
MEMBERSHIP_FILE = "cluster.json"
FORMAT_PREFIX = "cbj1."
"""The beginning of a token, with the version of its format."""
MAX_TOKEN_BYTES = 2**16
USUAL_REPLICAS = 3
"""The usual number of servers and copies, which survives the loss of one. More would cost each write another disk."""


def subject_token(repo: str) -> str:
    """A repository's name as one token of a subject and as a consumer's name, which must not contain a dot."""
    return repo.replace(".", "=")


def events_to(host: str, repo: str) -> str:
    """Where the events of a repository go."""
    return f"cb.in.{host}.ev.{subject_token(repo)}"


def answers_to(host: str) -> str:
    """Where answers to a host's calls go."""
    return f"cb.in.{host}.{ANSWERS}"


def calls_of(host: str, repo: str) -> str:
    """Where a host sends its repository's calls."""
    return f"cb.out.{host}.{subject_token(repo)}"


def news_of(host: str) -> str:
    """Where a host reports current activity, which is not stored."""
    return f"cb.news.{host}"


def questions_of(host: str) -> str:
    """Where a host asks the gateway."""
    return f"cb.ask.{host}"


def orders_to(host: str) -> str:
    """Where the gateway asks a host."""
    return f"cb.do.{host}"


def order_answers_of(host: str, order: str) -> str:
    """Where a host answers that order of the gateway. Between accounts, the server routes only the answers to a host's
    own questions automatically."""
    return f"cb.told.{host}.{order}"


def answer_subject(subject: str, order: str) -> str:
    """Where the answer to a question at ``subject`` goes; "" for the sender's own inbox."""
    host = subject.removeprefix(orders_to(""))
    return order_answers_of(host, order) if host != subject else ""


def stream_in(host: str) -> str:
    """The stream with everything for one host."""
    return f"CB_IN_{host}"


def stream_out(host: str) -> str:
    """The stream with everything from one host."""
    return f"CB_OUT_{host}"


def consumer_of(repo: str) -> str:
    """The durable consumer of a repository's events."""
    return f"ev_{subject_token(repo)}"


def host_services(host: str) -> tuple[str, ...]:
    """The only subjects on which a host's messages leave its own account.

    It cannot create a consumer or read a stream by sequence: the server would then send it other hosts' messages.
    """
    return (
        calls_of(host, ">"),
        questions_of(host),
        news_of(host),
        order_answers_of(host, ">"),
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_in(host)}.*",
        f"$JS.ACK.{stream_in(host)}.>",
    )


class ClusterMembership(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What a member of the cluster needs. ``name``: the host's, or ``gateway``. ``credential``: the signed claims that
    identify us to the servers. ``seed``: the private key for them, which stays here. ``ca``: the certificate that
    signed the servers' certificates; "" = the system's authorities. ``client_certificate``, ``client_key``: files, if
    the servers require a client certificate. ``replicas``: on how many servers everything is kept; 0 = on three, or on
    one if there are fewer than three."""

    servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    name: str = GATEWAY
    credential: str = ""
    seed: str = ""
    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""
    replicas: Annotated[int, Meta(ge=0, le=5)] = 0

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is encrypted."""
        return all(urlsplit(each).scheme == "tls" for each in self.servers)

    @property
    def copies(self) -> int:
        """On how many of these servers everything is kept."""
        return self.replicas or (USUAL_REPLICAS if len(self.servers) >= USUAL_REPLICAS else 1)


def is_host(home: Home) -> bool:
    """Whether this home is a host's, whose gateway has the channels of its repositories. Raises ConfigError."""
    return (home.root / MEMBERSHIP_FILE).exists() and _read(home).name != GATEWAY


def read_membership(home: Home, *, gateway: bool) -> ClusterMembership:
    """The membership in this home. Raises ConfigError, with a line that says what to do."""
    source = home.root / MEMBERSHIP_FILE
    if not source.exists():
        how = "codebutler cluster create" if gateway else "codebutler host join"
        raise ConfigError(f"{source} does not exist: `{how}` creates it")
    membership = _read(home)
    if gateway != (membership.name == GATEWAY):
        raise ConfigError(
            f"{source}: name: a gateway is called {GATEWAY!r}, and a host is not (found {membership.name!r})"
        )
    if fault := _fault(membership):
        raise ConfigError(f"{source}: {fault}")
    return membership


def read_gateway_membership(file: Path) -> ClusterMembership:
    """A gateway's membership, from another file. Raises ConfigError."""
    try:
        membership = parse_as(file.read_bytes(), str(file), ClusterMembership)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if fault := "it is a host's" if membership.name != GATEWAY else _fault(membership):
        raise ConfigError(f"{file}: {fault}")
    return membership


def write_membership(home: Home, membership: ClusterMembership) -> None:
    """Write it, readable by its owner only. Raises CodeButlerError."""
    home.ensure()
    with home.open() as directory:
        directory.write(MEMBERSHIP_FILE, msgspec.json.format(msgspec.json.encode(membership), indent=2))


def token_of(membership: ClusterMembership) -> str:
    """The membership as one line, to carry it to another machine. It is a secret."""
    packed = zlib.compress(msgspec.msgpack.encode(membership), 9)
    return FORMAT_PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def membership_from_token(token: str) -> ClusterMembership:
    """The membership in a token. Raises ConfigError without quoting it."""
    text = "".join(token.split())
    if not text.startswith(FORMAT_PREFIX):
        raise ConfigError(f"this is not a token: paste the whole line, starting with {FORMAT_PREFIX} on")
    body = text.removeprefix(FORMAT_PREFIX)
    try:
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(packed, MAX_TOKEN_BYTES)
        membership = msgspec.msgpack.decode(data, type=ClusterMembership)
        is_complete = decompressor.eof
    except (ValueError, zlib.error, msgspec.DecodeError):
        is_complete = False
    if not is_complete:
        raise ConfigError("the token is damaged: copy the whole line again")
    if membership.name == GATEWAY or (fault := _fault(membership)):
        raise ConfigError(
            f"the token cannot be used: {fault if membership.name != GATEWAY else 'not for a host'}"
        )
    return membership


def _fault(membership: ClusterMembership) -> str:
    """Why it cannot be used; "" if it can."""
    if not HOST_NAME.fullmatch(membership.name):
        return f"name: {membership.name!r} is not a valid host name: use lower-case letters, digits and '-'"
    if not membership.seed or not membership.credential:
        how = "codebutler cluster create" if membership.name == GATEWAY else "codebutler host join"
        return f"no credential: `{how}` writes one"
    for each in membership.servers:
        where = urlsplit(each)
        if where.scheme not in ("nats", "tls") or not where.hostname:
            return f"servers: {each!r} is not an address such as tls://HOST:4222"
        if where.scheme == "nats" and not is_loopback(where.hostname):
            return f"servers: {each} would send everything over the network unencrypted: use tls://"
    if len({urlsplit(each).scheme for each in membership.servers}) > 1:
        return "servers: some are nats://, some tls://: use tls:// for all of them"
    return ""


def _read(home: Home) -> ClusterMembership:
    source = home.root / MEMBERSHIP_FILE
    if (data := read_home_file(home, MEMBERSHIP_FILE)) is None:
        raise ConfigError(f"there is no {source}")
    return parse_as(data, str(source), ClusterMembership)


def read_home_file(home: Home, name: str) -> bytes | None:
    """The content of a file in this home; None if it is missing."""
    if not home.root.is_dir():
        return None
    with home.open() as directory:
        return directory.read(name)
