"""All paths: the home of an installation and the private directory of a repository."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.domain.errors import ConfigError
from codebutler.platform.files import PrivateDir, write_error
from codebutler.platform.system import this_system

CONFIG_NAME = "config.json"
PRIVATE_DIR = ".codebutler"


class Home(Struct, frozen=True):
    """The files in ``$CODEBUTLER_HOME``: one installation, one supervisor. Mode 0700, its files 0600."""

    root: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Home:
        """``CODEBUTLER_HOME``, or ``.codebutler`` in the user's home directory."""
        if configured := env.get("CODEBUTLER_HOME", "").strip():
            return cls(Path(configured).expanduser().absolute())
        base = env.get("HOME") or str(Path.home())
        return cls(Path(base).absolute() / ".codebutler")

    @property
    def config(self) -> Path:
        """The global configuration, tokens included."""
        return self.root / CONFIG_NAME

    @property
    def env_file(self) -> Path:
        """Variables for keys of the configuration, one NAME=value per line."""
        return self.root / ".env"

    @property
    def registry(self) -> Path:
        """The served repositories, and the trusted digest of each one's configuration."""
        return self.root / "repos.json"

    @property
    def journal(self) -> Path:
        """Acknowledged events that no worker has taken yet, and recent messages."""
        return self.root / "journal.db"

    @property
    def hosted_runs(self) -> Path:
        """The rows that hosts have reported to a gateway about their runs."""
        return self.root / "hosted-runs.db"

    @property
    def dashboard_key(self) -> Path:
        """The key to the dashboard; kept so that open pages work after a restart."""
        return self.root / "dashboard.key"

    @property
    def backups(self) -> Path:
        """Daily copies of the journal and of every repository's store, each in its own directory."""
        return self.root / "backups"

    @property
    def pushes(self) -> Path:
        """The bare repositories from which commits are pushed, one per repository; agents cannot reach them."""
        return self.root / "pushes"

    @property
    def socket(self) -> Path:
        """The control socket of the running supervisor."""
        return self.root / "supervisor.sock"

    @property
    def lock(self) -> Path:
        """Held while a supervisor runs; the file itself stays."""
        return self.root / "supervisor.lock"

    @property
    def logs(self) -> Path:
        """The directory of all logs of the parent."""
        return self.root / "logs"

    @property
    def log_file(self) -> Path:
        """The log for people: one line per event."""
        return self.logs / "codebutler.log"

    @property
    def audit(self) -> Path:
        """What was run or refused for whom: one JSON object per line, each with the digest of the one before."""
        return self.logs / "audit.jsonl"

    def ensure(self) -> Home:
        """Create the directories, and remove existing access for group and others.

        Raises CodeButlerError if that is not possible.
        """
        limit = this_system().socket_path_bytes
        if (length := len(os.fsencode(self.socket))) > limit:
            raise ConfigError(
                f"{self.root}: a socket in it would have a path of {length} bytes, the system takes "
                f"{limit}: set CODEBUTLER_HOME to a shorter one"
            )
        for directory in (self.root, self.logs):
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise write_error(directory, error) from error
            make_private(directory)
        for file in (self.config, self.env_file, self.registry, self.journal, self.lock, self.dashboard_key):
            make_private(file)
        return self

    def open(self) -> PrivateDir:
        """Opens the home for its files; links are the owner's own choice here."""
        return PrivateDir(self.root, follow_links=True, create=True)


class RepoPaths(Struct, frozen=True):
    """CodeButler's files in a repository, below ``<repo>/.codebutler``. The repository is not trusted."""

    repo: Path

    @property
    def root(self) -> Path:
        """The private directory; its own .gitignore hides it from git."""
        return self.repo / PRIVATE_DIR

    @property
    def config(self) -> Path:
        """The repository's configuration: settings that loosen safety count only while its digest is trusted."""
        return self.root / CONFIG_NAME

    @property
    def store(self) -> Path:
        """The worker's SQLite file; its one writer is that worker."""
        return self.root / "store.db"

    def open(self, *, create: bool = False) -> PrivateDir:
        """Opens the private directory. Follows no links: the repository's content may have put them there."""
        return PrivateDir(self.root, create=create)


def make_private(path: Path) -> None:
    """Remove access for group and others; does nothing if the path is missing.

    Raises CodeButlerError if the mode is too wide and cannot be changed.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(mode & 0o700)
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(path, error) from error
