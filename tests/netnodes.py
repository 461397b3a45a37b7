"""Three NATS servers in network namespaces of their own, which can be cut off from each other. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.natsserver import NatsCluster, NatsServer

NET = "10.213.77"


class NodeNetwork:
    """A bridge, and a namespace for each server."""

    def __init__(self) -> None:
        self.bridge = f"cbn{os.getpid()}"[:12]
        self.names = [f"{self.bridge}-{number}" for number in (1, 2, 3)]

    def make(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{NET}.254/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for number, name in enumerate(self.names, 1):
            outer, inner = f"{self.bridge}{number}o", "eth0"
            _ip("netns", "add", name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            _ip("link", "set", outer, "master", self.bridge, "up")
            _ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", inner)
            _ip("-n", name, "link", "set", inner, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def cut(self, one: int, other: int) -> None:
        """Nothing passes between these two."""
        _ip("-n", self.names[one - 1], "route", "add", "blackhole", address(other))
        _ip("-n", self.names[other - 1], "route", "add", "blackhole", address(one))

    def mend(self, one: int, other: int) -> None:
        _ip("-n", self.names[one - 1], "route", "del", "blackhole", address(other))
        _ip("-n", self.names[other - 1], "route", "del", "blackhole", address(one))

    def remove(self) -> None:
        for number, name in enumerate(self.names, 1):
            # A namespace lives on for a moment, and its end of the link with it.
            subprocess.run(["ip", "link", "del", f"{self.bridge}{number}o"], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)


def address(number: int) -> str:
    return f"{NET}.{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@asynccontextmanager
async def apart(directory: Path) -> AsyncIterator[tuple[NatsCluster, NodeNetwork]]:
    network = NodeNetwork()
    made = []
    for number, name in enumerate(network.names, 1):
        place = directory / f"n{number}"
        place.mkdir()
        made.append(NatsServer(place, address(number), ("ip", "netns", "exec", name)))
    servers = NatsCluster(made)
    try:
        network.make()
        await servers.start()
        yield servers, network
    finally:
        await servers.kill()
        network.remove()
