"""The pure parts of a cluster: names, permissions, and which servers can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler.cluster.membership import is_host, read_membership
from codebutler.cluster.server import MAX_PAYLOAD_BYTES, objection, server_config
from codebutler.cluster.subjects import consumer_of, events_to, host_permissions
from codebutler.config.paths import Home
from codebutler.config.registry import host_in
from codebutler.domain.errors import ConfigError


def test_an_old_or_narrow_server_is_named() -> None:
    assert objection((2, 12, 3), MAX_PAYLOAD_BYTES) == ""
    assert objection((3, 0, 0), MAX_PAYLOAD_BYTES) == ""
    assert "2.9.10 is too old: use 2.12.3" in objection((2, 9, 10), MAX_PAYLOAD_BYTES)
    assert "max_payload" in objection((2, 15, 1), 2**20)


def test_a_name_with_dots_is_one_token_and_stays_itself() -> None:
    assert events_to("laptop", "my.shop") == "cb.in.laptop.ev.my=shop"
    assert consumer_of("my.shop") == "ev_my=shop"


def test_no_host_may_make_consumers_or_read_streams() -> None:
    publish, subscribe = host_permissions("laptop")
    api = [subject for subject in publish if subject.startswith("$JS.API.")]
    assert api == ["$JS.API.CONSUMER.MSG.NEXT.CB_IN_laptop.*"]
    assert all("laptop" in subject for subject in (*publish, *subscribe))


def test_the_servers_configuration_syncs_each_message_and_binds_each_host() -> None:
    config = json.loads(server_config({"gateway": "g", "laptop": "l"}, listen="127.0.0.1:1", directory="/d"))
    assert config["jetstream"]["sync_interval"] == "always"
    gateway, laptop = config["authorization"]["users"]
    assert "permissions" not in gateway
    assert laptop["permissions"]["publish"] == list(host_permissions("laptop")[0])


@pytest.mark.parametrize(
    ("path", "host"),
    [("laptop:shop", "laptop"), ("/srv/a:b", ""), ("./a:b", ""), ("shop", ""), (":shop", ""), ("a/b:c", "")],
)
def test_a_path_of_a_host(path: str, host: str) -> None:
    assert host_in(path) == host


def membership(tmp_path: Path, **values: object) -> Home:
    home = Home(tmp_path).ensure()
    (tmp_path / "cluster.json").write_text(json.dumps({"servers": ["nats://127.0.0.1:4222"], **values}))
    return home


def test_a_home_is_a_gateways_or_a_hosts(tmp_path: Path) -> None:
    assert not is_host(Home(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no .*cluster\.json"):
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
        ({"name": "La.ptop"}, "cannot be a host's name"),
        ({"name": "laptop", "servers": []}, "servers"),
        ({"name": "laptop", "color": "red"}, "color"),
        ({"name": "laptop", "replicas": 9}, "replicas"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, values: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_membership(membership(tmp_path, **values), gateway=False)
