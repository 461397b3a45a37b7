"""Certificates for the NATS servers, made by ``openssl``: an authority of the cluster's own signs them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from codebutler.cluster.membership import is_loopback
from codebutler.domain.errors import CodeButlerError, ConfigError

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


@dataclass(frozen=True, slots=True)
class Certificate:
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
            return _made(scratch)

    def server(self, authority: Certificate, hosts: tuple[str, ...]) -> Certificate:
        """A certificate for a server with these host names and IP addresses."""
        with tempfile.TemporaryDirectory() as scratch:
            self._configure(scratch, ",".join(map(_alternative, hosts)))
            (Path(scratch) / "ca.pem").write_bytes(authority.certificate)
            (Path(scratch) / "ca-key.pem").write_bytes(authority.key)
            self._run(
                scratch,
                "req",
                "-new",
                *CURVE,
                "-config",
                "x.cnf",
                "-keyout",
                "key.pem",
                "-out",
                "request.pem",
            )
            self._run(
                scratch, "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
                "-CAcreateserial", "-days", DAYS, "-sha256", "-extfile", "x.cnf", "-extensions", "server",
                "-out", "cert.pem",
            )  # fmt: skip
            return _made(scratch)

    def _configure(self, scratch: str, names: str) -> None:
        (Path(scratch) / "x.cnf").write_text(EXTENSIONS.format(names=names or "DNS:none"))

    def _run(self, scratch: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._openssl, *arguments], cwd=scratch, capture_output=True, text=True, timeout=RUN_S
        )
        if done.returncode:
            raise CodeButlerError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-200:]}")


def _made(scratch: str) -> Certificate:
    return Certificate((Path(scratch) / "cert.pem").read_bytes(), (Path(scratch) / "key.pem").read_bytes())


def _alternative(host: str) -> str:
    is_number = host.replace(".", "").isdigit() or ":" in host or (is_loopback(host) and host != "localhost")
    return f"{'IP' if is_number else 'DNS'}:{host.strip('[]')}"
