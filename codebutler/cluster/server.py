"""The NATS servers of a cluster: whom they trust, where they listen, their certificates (an authority of the cluster's
own signs them, with ``openssl``), and the folders to start them in."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from codebutler.config.paths import make_private
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.files import PrivateDir
from codebutler.platform.http import is_loopback

MINIMUM = (2, 12, 3)
"""Older versions cannot sync each message, or lose synced messages."""
MAX_PAYLOAD_BYTES = 8 * 2**20
SYNC = "5s"
"""How often servers compare the accounts they know: one that was down then learns who was removed."""
PORT = 4222
ROUTES_APART = 2000
"""The distance between a server's port for clients and its port for other servers."""
ROUTE_PINGS = {"ping_interval": "5s", "ping_max": 2}
"""With these, servers notice within seconds that they no longer hear each other. Their defaults take minutes."""
CERTIFICATE, CERTIFICATE_KEY, CA, CLIENT_CA = "server.pem", "server-key.pem", "ca.pem", "client-ca.pem"
"""The names of files next to the configuration."""
DAYS = "3650"
RUN_S = 30
EXTENSIONS = """
[req]
distinguished_name = name
prompt = no
[name]
CN = codebutler cluster
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = {names}
"""
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
CA_KEY = "ca-key.pem"


class Trust(Struct, frozen=True):
    """The signed claims by which servers know the members. ``accounts`` by public key; hosts' accounts are added later,
    without a restart."""

    operator: str
    system: str
    accounts: Mapping[str, str]


class NatsNode(Struct, frozen=True):
    """One of the servers, and its address for everybody else."""

    host: str
    port: int = PORT

    def url(self, *, encrypted: bool) -> str:
        """The URL for clients."""
        return f"{'tls' if encrypted else 'nats'}://{self.host}:{self.port}"


def server_problem(version: tuple[int, int, int], max_payload_bytes: int) -> str:
    """Why a server of that version and configuration cannot be used; "" if it can."""
    if version < MINIMUM:
        return f"nats-server {_dotted(version)} is too old: use {_dotted(MINIMUM)} or newer"
    if max_payload_bytes < MAX_PAYLOAD_BYTES:
        return f"the NATS server's max_payload is {max_payload_bytes}: set it to {MAX_PAYLOAD_BYTES}"
    return ""


def server_config(
    trust: Trust, *, listen: str, directory: str, encrypted: bool = False, client_ca: bool = False
) -> dict[str, Any]:
    """The configuration for ``nats-server -c``, as JSON, which it accepts. Paths are relative to the directory it is
    started in."""
    tls: dict[str, object] = {"tls": _tls(client_ca=client_ca)} if encrypted else {}
    return {
        "listen": listen,
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": {"store_dir": directory, "sync_interval": "always"},
        "operator": trust.operator,
        "system_account": trust.system,
        "resolver": {"type": "full", "dir": f"{directory}/accounts", "allow_delete": False, "interval": SYNC},
        "resolver_preload": dict(trust.accounts),
        **tls,
    }


def routes_config(node: NatsNode, nodes: tuple[NatsNode, ...], *, encrypted: bool) -> dict[str, object]:
    """The additional settings of one of several servers: its name, and the other servers."""
    others = [f"nats-route://{each.host}:{each.port + ROUTES_APART}" for each in nodes if each != node]
    files = {"cert_file": CERTIFICATE, "key_file": CERTIFICATE_KEY, "ca_file": CA}
    tls: dict[str, object] = {"tls": {**files, "verify": True}} if encrypted else {}
    listen = f"{'0.0.0.0' if encrypted else node.host}:{node.port + ROUTES_APART}"  # noqa: S104 - only with TLS
    cluster = {
        "name": "codebutler",
        "listen": listen,
        "routes": others,
        "no_advertise": True,
        **ROUTE_PINGS,
        **tls,
    }
    return {"server_name": f"{node.host}-{node.port}", "cluster": cluster}


def _tls(*, client_ca: bool) -> dict[str, object]:
    files: dict[str, object] = {"cert_file": CERTIFICATE, "key_file": CERTIFICATE_KEY, "min_version": "1.2"}
    verified = {"ca_file": CLIENT_CA, "verify": True} if client_ca else {}
    return {**files, **verified, "handshake_first": True}


def config_bytes(config: Mapping[str, object]) -> bytes:
    """The configuration as a file's content."""
    return json.dumps(config, indent=2).encode() + b"\n"


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


class Certificate(Struct, frozen=True):
    """A certificate and its key, both as PEM."""

    certificate: bytes
    key: bytes


class CertificateMaker:
    """Creates an authority, and certificates that it signs. Not ``async``, since only a command uses it."""

    def __init__(self) -> None:
        """Raises ConfigError without openssl."""
        found = shutil.which("openssl")
        if found is None:
            raise ConfigError("install openssl: servers that other machines reach need certificates")
        self._openssl = found

    def authority(self) -> Certificate:
        """An authority that signs servers' certificates."""
        with tempfile.TemporaryDirectory() as scratch:
            self._configure(scratch, "")
            self._run(
                scratch, "req", "-x509", *CURVE, "-days", DAYS, "-config", "x.cnf", "-extensions", "ca",
                "-keyout", "key.pem", "-out", "cert.pem",
            )  # fmt: skip
            return _read_certificate(scratch)

    def server(self, authority: Certificate, hosts: tuple[str, ...]) -> Certificate:
        """A certificate for a server with these host names and IP addresses."""
        with tempfile.TemporaryDirectory() as scratch:
            self._configure(scratch, ",".join(map(_subject_alt_name, hosts)))
            (Path(scratch) / "ca.pem").write_bytes(authority.certificate)
            (Path(scratch) / "ca-key.pem").write_bytes(authority.key)
            self._run(
                scratch, "req", "-new", *CURVE, "-config", "x.cnf", "-keyout", "key.pem", "-out", "request.pem"
            )  # fmt: skip
            self._run(
                scratch, "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
                "-CAcreateserial", "-days", DAYS, "-sha256", "-extfile", "x.cnf", "-extensions", "server",
                "-out", "cert.pem",
            )  # fmt: skip
            return _read_certificate(scratch)

    def _configure(self, scratch: str, names: str) -> None:
        (Path(scratch) / "x.cnf").write_text(EXTENSIONS.format(names=names or "DNS:none"))

    def _run(self, scratch: str, *arguments: str) -> None:
        completed = subprocess.run(
            [self._openssl, *arguments], cwd=scratch, capture_output=True, text=True, timeout=RUN_S
        )
        if completed.returncode:
            raise CodeButlerError(f"openssl {arguments[0]} failed: {completed.stderr.strip()[-200:]}")


def _read_certificate(scratch: str) -> Certificate:
    return Certificate((Path(scratch) / "cert.pem").read_bytes(), (Path(scratch) / "key.pem").read_bytes())


def _subject_alt_name(host: str) -> str:
    is_number = host.replace(".", "").isdigit() or ":" in host or (is_loopback(host) and host != "localhost")
    return f"{'IP' if is_number else 'DNS'}:{host.strip('[]')}"


class NatsFiles:
    """Below ``root``, one folder for each server if there are several. Every method raises CodeButlerError."""

    def __init__(self, root: Path, nodes: tuple[NatsNode, ...], *, encrypted: bool) -> None:
        if root.exists():
            raise CodeButlerError(f"{root} already exists: remove it, unless a server uses it")
        self._root = root
        self._nodes = nodes
        self._maker = CertificateMaker() if encrypted else None
        self._authority = self._maker.authority() if self._maker is not None else Certificate(b"", b"")

    @property
    def ca(self) -> bytes:
        """The certificate that signed the servers' certificates; empty if they need none."""
        return self._authority.certificate

    def write(self, trust: Trust, directory: str, client_ca: bytes) -> list[Path]:
        """Write the folders; returns them in the servers' order."""
        is_alone = len(self._nodes) == 1
        folders = [
            self._root if is_alone else self._root / f"{each.host}-{each.port}" for each in self._nodes
        ]
        for node, folder in zip(self._nodes, folders, strict=True):
            make_private(folder)
            with PrivateDir(folder, create=True) as opened:
                for name, data in self._files(node, trust, directory, client_ca).items():
                    opened.write(name, data)
        if self._maker is not None:
            with PrivateDir(self._root) as opened:
                opened.write(CA_KEY, self._authority.key)
        return folders

    def _files(self, node: NatsNode, trust: Trust, directory: str, client_ca: bytes) -> dict[str, bytes]:
        encrypted = self._maker is not None
        at = node.host if is_loopback(node.host) else "0.0.0.0"  # noqa: S104 - with TLS
        config = server_config(
            trust,
            listen=f"{at}:{node.port}",
            directory=directory,
            encrypted=encrypted,
            client_ca=bool(client_ca),
        )
        if len(self._nodes) > 1:
            config |= routes_config(node, self._nodes, encrypted=encrypted)
        files = {"nats.conf": config_bytes(config)}
        if self._maker is not None:
            certificate = self._maker.server(self._authority, (node.host,))
            files |= {CERTIFICATE: certificate.certificate, CERTIFICATE_KEY: certificate.key, CA: self.ca}
        return files | ({CLIENT_CA: client_ca} if client_ca else {})
