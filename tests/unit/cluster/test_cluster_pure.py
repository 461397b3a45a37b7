"""The pure parts of a cluster: names, permissions, and which servers can be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from codebutler.cluster.authority import ClusterAuthority, Key, decode_claims, host_claims
from codebutler.cluster.membership import (
    FORMAT_PREFIX,
    HOST_SERVICES,
    ClusterMembership,
    answer_subject,
    consumer_of,
    events_to,
    host_services,
    is_host,
    membership_from_token,
    order_answers_of,
    orders_to,
    questions_of,
    read_membership,
    token_of,
)
from codebutler.cluster.messages import ClusterCodec, HostHeartbeat, HostQuestion, incompatibility
from codebutler.cluster.server import (
    MAX_PAYLOAD_BYTES,
    NatsNode,
    config_bytes,
    routes_config,
    server_config,
    server_problem,
)
from codebutler.config.paths import Home
from codebutler.config.registry import host_in
from codebutler.domain.errors import ConfigError
from codebutler.platform.http import is_loopback


def test_an_old_or_narrow_server_is_named() -> None:
    assert server_problem((2, 12, 3), MAX_PAYLOAD_BYTES) == ""
    assert server_problem((3, 0, 0), MAX_PAYLOAD_BYTES) == ""
    assert "2.9.10 is too old: use 2.12.3" in server_problem((2, 9, 10), MAX_PAYLOAD_BYTES)
    assert "max_payload" in server_problem((2, 15, 1), 2**20)


def test_a_name_with_dots_is_one_token_and_stays_itself() -> None:
    assert events_to("laptop", "my.shop") == "cb.in.laptop.ev.my=shop"
    assert consumer_of("my.shop") == "ev_my=shop"


def test_what_a_host_can_reach_is_its_own() -> None:
    offered = [
        re.compile(each.replace("$", r"\$").replace("*", "[^.]+").replace(">", ".+"))
        for each in HOST_SERVICES
    ]
    for subject in host_services("laptop"):
        assert "laptop" in subject
        assert any(each.fullmatch(subject) for each in offered)
    api = [subject for subject in HOST_SERVICES if subject.startswith("$JS.API.")]
    assert api == ["$JS.API.CONSUMER.MSG.NEXT.*.*"]


def test_an_answer_crosses_by_its_hosts_own_subject() -> None:
    assert answer_subject(orders_to("laptop"), "1") == order_answers_of("laptop", "1") == "cb.told.laptop.1"
    assert answer_subject(questions_of("laptop"), "1") == ""


def test_the_accounts_of_hosts_have_no_storage_and_their_own_imports() -> None:
    operator, gateway, host = Key.new("operator"), Key.new("account"), Key.new("account")
    claims = decode_claims(host_claims(operator, gateway.public, host, "laptop", 5))
    assert (claims["iss"], claims["sub"], claims["name"]) == (operator.public, host.public, "laptop")
    assert [each["subject"] for each in claims["nats"]["imports"]] == [
        *host_services("laptop"),
        "cb.do.laptop",
    ]
    assert {each["account"] for each in claims["nats"]["imports"]} == {gateway.public}
    assert not {"disk_storage", "mem_storage", "streams"} & claims["nats"]["limits"].keys()
    authority = ClusterAuthority.new(("nats://127.0.0.1:1",), "")
    gone = decode_claims(authority.removal_claims(host.public, "laptop", 6))["nats"]
    assert (gone["revocations"], gone["limits"]["conn"], gone.get("imports")) == ({"*": 6}, 0, None)
    assert decode_claims("x") == decode_claims("a.b.c") == decode_claims("a.W10.c") == {}


def test_the_servers_configuration_syncs_each_message_and_holds_no_secret() -> None:
    authority = ClusterAuthority.new(("nats://127.0.0.1:1",), "")
    config = server_config(authority.trust(1), listen="127.0.0.1:1", directory="/d", encrypted=True)
    assert config["jetstream"] == {"store_dir": "/d", "sync_interval": "always"}
    assert config["tls"] == {
        "cert_file": "server.pem",
        "key_file": "server-key.pem",
        "min_version": "1.2",
        "handshake_first": True,
    }
    text = config_bytes(config).decode()
    assert not any(each in text for each in (authority.operator, authority.system, authority.gateway))


def test_servers_of_a_cluster_know_the_others_and_trust_nobody_without_a_certificate() -> None:
    nodes = tuple(NatsNode(f"{name}.example") for name in ("one", "two", "three"))
    made = routes_config(nodes[0], nodes, encrypted=True)
    cluster = made["cluster"]
    assert isinstance(cluster, dict)
    assert cluster["routes"] == ["nats-route://two.example:6222", "nats-route://three.example:6222"]
    assert cluster["tls"]["verify"] is True
    assert nodes[0].url(encrypted=True) == "tls://one.example:4222"


@pytest.mark.parametrize(
    ("host", "gateway", "told"),
    [
        (2, 2, ""),
        (1, 2, ""),
        (1, 3, "laptop runs CodeButler 0.1, too old for its gateway"),
        (3, 2, "laptop runs CodeButler 0.1, too new for its gateway"),
    ],
)
def test_a_gateway_serves_hosts_of_its_version_and_the_one_before(host: int, gateway: int, told: str) -> None:
    why = incompatibility(host, gateway, name="laptop", release="0.1")
    assert why.startswith(told)
    assert bool(why) == bool(told)


def test_a_later_versions_message_can_be_read() -> None:
    """What it adds is passed over."""
    later = msgspec.msgpack.encode(
        {"type": "beat", "epoch": 0, "version": 9, "instance": "i", "mood": "good", "release": "9.0"}
    )
    codec: ClusterCodec[HostQuestion] = ClusterCodec(HostQuestion)
    assert codec.decode(later) == HostHeartbeat(epoch=0, version=9, instance="i", release="9.0")


def member(**values: object) -> ClusterMembership:
    known = {"servers": ("nats://127.0.0.1:4222",), "name": "laptop", "credential": "c", "seed": "s"}
    return msgspec.convert(known | values, ClusterMembership)


def test_a_token_brings_a_membership_in_one_line() -> None:
    known = member(ca="-----BEGIN CERTIFICATE-----\nMIIB\n", servers=("tls://nats.example:4222",))
    token = token_of(known)
    assert len(token.split()) == 1
    assert membership_from_token(f" {token[:40]}\n{token[40:]}\n") == known


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "this is not a token"),
        ("xoxb-1", "this is not a token"),
        (token_of(member())[:-9], "damaged"),
        (token_of(member()) + "A!", "damaged"),
        (FORMAT_PREFIX + "AAAA", "damaged"),
        (token_of(member(ca="x" * 10**6)), "damaged"),
        (token_of(member(name="gateway")), "not for a host"),
        (token_of(member(seed="")), "no credential"),
        (token_of(member(servers=("nats://10.0.0.1:4222",))), "unencrypted"),
    ],
)
def test_what_is_no_token_is_refused_without_quoting_it(token: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        membership_from_token(token)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("laptop", False),
        ("localhost.example", False),
    ],
)
def test_what_leads_to_this_machine_only(address: str, here: bool) -> None:
    assert is_loopback(address) is here


@pytest.mark.parametrize(
    ("path", "host"),
    [("laptop:shop", "laptop"), ("/srv/a:b", ""), ("./a:b", ""), ("shop", ""), (":shop", ""), ("a/b:c", "")],
)
def test_a_path_of_a_host(path: str, host: str) -> None:
    assert host_in(path) == host


def membership(tmp_path: Path, **values: object) -> Home:
    home = Home(tmp_path).ensure()
    known = {"servers": ["nats://127.0.0.1:4222"], "credential": "c", "seed": "s"}
    (tmp_path / "cluster.json").write_text(json.dumps(known | values))
    return home


def test_a_home_is_a_gateways_or_a_hosts(tmp_path: Path) -> None:
    assert not is_host(Home(tmp_path))
    with pytest.raises(ConfigError, match=r"cluster\.json does not exist"):
        read_membership(Home(tmp_path), gateway=True)
    home = membership(tmp_path, name="gateway")
    assert not is_host(home)
    assert read_membership(home, gateway=True).name == "gateway"
    with pytest.raises(ConfigError, match="a gateway is called"):
        read_membership(home, gateway=False)
    home = membership(tmp_path, name="laptop")
    assert is_host(home)
    with pytest.raises(ConfigError, match="a gateway is called"):
        read_membership(home, gateway=True)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"name": "La.ptop"}, "is not a valid host name"),
        ({"name": "laptop", "servers": []}, "servers"),
        ({"name": "laptop", "color": "red"}, "color"),
        ({"name": "laptop", "replicas": 9}, "replicas"),
        ({"name": "laptop", "seed": ""}, "no credential: `codebutler host join`"),
        ({"name": "laptop", "servers": ["nats://10.0.0.1:4222"]}, "over the network unencrypted: use tls://"),
        ({"name": "laptop", "servers": ["nats://127.0.0.1:1", "tls://a.example:1"]}, "all of them"),
        ({"name": "laptop", "servers": ["http://a.example"]}, "not an address such as"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, values: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_membership(membership(tmp_path, **values), gateway=False)
