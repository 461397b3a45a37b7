"""The folders for starting a cluster's NATS servers: configuration and certificates."""

from __future__ import annotations

from pathlib import Path

from codebutler.cluster.membership import is_loopback
from codebutler.cluster.server import (
    CA,
    CERTIFICATE,
    CERTIFICATE_KEY,
    CLIENT_CA,
    Certificate,
    CertificateMaker,
    NatsNode,
    Trust,
    routes_config,
    server_config,
    written,
)
from codebutler.config.paths import make_private
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir

CA_KEY = "ca-key.pem"


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
        folders = [self._folder(node) for node in self._nodes]
        for node, folder in zip(self._nodes, folders, strict=True):
            make_private(folder)
            with PrivateDir(folder, create=True) as opened:
                for name, data in self._files(node, trust, directory, client_ca).items():
                    opened.write(name, data)
        if self._maker is not None:
            with PrivateDir(self._root) as opened:
                opened.write(CA_KEY, self._authority.key)
        return folders

    def _folder(self, node: NatsNode) -> Path:
        return self._root if len(self._nodes) == 1 else self._root / f"{node.host}-{node.port}"

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
        files = {"nats.conf": written(config)}
        if self._maker is not None:
            made = self._maker.server(self._authority, (node.host,))
            files |= {CERTIFICATE: made.certificate, CERTIFICATE_KEY: made.key, CA: self.ca}
        return files | ({CLIENT_CA: client_ca} if client_ca else {})
