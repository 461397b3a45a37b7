"""What a release leaves on a disk: a home, its journal, and a repository with its store, made by using it.

``python -m tests.releases`` freezes the version that is checked out as ``tests/golden/releases/VERSION.tar.xz``, once,
when it is released. The tests open, migrate and serve each of them for ever.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from codebutler.config.paths import Home
from codebutler.domain.version import VERSION
from tests.e2e.house import House, house
from tests.ordinary import give_repository_away, sample_repository

RELEASES = Path(__file__).parent / "golden" / "releases"
CHANNEL = "sample"
HOME_FILES = ("config.json", "repos.json", "journal.db", "logs/audit.jsonl", "logs/audit.head")
FACTS = "release.json"


@dataclass(frozen=True)
class Release:
    """``answered`` and ``asked`` are threads: one with an answer, one whose run waited for an approval when the
    supervisor was stopped. ``home`` and ``repo`` are where it was unpacked."""

    version: str
    channel: str
    answered: str
    asked: str
    home: Path = Path()
    repo: Path = Path()


def releases() -> list[str]:
    """The versions that are kept."""
    return sorted(path.name.removesuffix(".tar.xz") for path in RELEASES.glob("*.tar.xz"))


def unpacked(version: str, place: Path) -> Release:
    """The release in ``place``, as if it had been left there."""
    with tarfile.open(RELEASES / f"{version}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(place)
    home, repo = place / "home", place / "repo"
    registry = Home(home).registry
    registry.write_text(registry.read_text().replace("REPOSITORY", str(repo)))
    for private in (home, repo / ".codebutler"):
        private.chmod(0o700)
    give_repository_away(repo)
    return Release(**json.loads((place / FACTS).read_text()), home=home, repo=repo)


async def use(built: House, repo: Path) -> Release:
    """Use a bit of everything that is kept, and stop."""
    agent = {"debounceSeconds": 0, "default": "rehearsal"}
    channel = await built.add_repo(repo, CHANNEL, agent=agent, budget={"repo": {"turnsPerDay": 500}})
    (repo / ".codebutler" / "memory.md").write_text("- The greeting is in src/app.py.\n")
    (repo / ".codebutler" / "jobs.yaml").write_text(
        'jobs:\n  - name: nightly\n    cron: "0 3 * * *"\n    prompt: list the files\n'
    )
    await built.supervise()
    first = await built.say(channel, "read README.md")
    await built.answer(channel, first, "A sample repository")
    again = await built.say(channel, "list the files", first)
    await built.outcome(channel, again)
    await built.say(channel, "!agent rehearsal", first)
    await built.answer(channel, first, "answers in this thread")
    await built.answer(channel, await built.say(channel, "run: echo kept"), "kept")
    asked = await built.say(channel, "delete README.md")
    await built.until_status(lambda status: status["repos"][0]["turns"]["waiting"] == 1)
    await built.stop()
    return Release(version=VERSION, channel=channel, answered=first, asked=asked)


def pack(found: Release, home: Path, repo: Path) -> None:
    """Write the archive, without what is this machine's: paths, owners, times, tokens."""
    facts = {name: value for name, value in asdict(found).items() if isinstance(value, str)}
    config, registry = json.loads((home / "config.json").read_text()), (home / "repos.json").read_text()
    (home / "config.json").write_text(json.dumps({**config, "slack": {}}, indent=2))
    (home / "repos.json").write_text(registry.replace(str(repo), "REPOSITORY"))
    (home.parent / FACTS).write_text(json.dumps(facts, indent=2))
    with tarfile.open(RELEASES / f"{VERSION}.tar.xz", "w:xz") as archive:
        for path in (
            home.parent / FACTS,
            *(home / name for name in HOME_FILES),
            *_files(repo, lambda path: "hooks" not in path.parts),
        ):
            archive.add(path, str(path.relative_to(home.parent)), recursive=False, filter=_anybodys)


def _files(root: Path, wanted: Callable[[Path], bool]) -> Iterable[Path]:
    return (path for path in sorted(root.rglob("*")) if wanted(path) and (path.is_file() or path.is_dir()))


def _anybodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


async def freeze() -> None:
    """Make the archive of this version."""
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        place = Path(scratch)
        place.chmod(0o755)
        repo = sample_repository(place)
        async with house(place, CHANNEL) as built:
            found = await use(built, repo)
            pack(found, built.home, repo)


if __name__ == "__main__":
    if VERSION in releases():
        sys.exit(f"{VERSION} is frozen already: a release is kept as it was")
    RELEASES.mkdir(parents=True, exist_ok=True)
    asyncio.run(freeze())
