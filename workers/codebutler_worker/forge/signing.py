"""Signs commits that are made from chat, with the owner's key, outside the sandbox.

Git signs, in an empty bare repository that exists for this one commit: it gets the commit's tree and parent as data and
makes the same commit again, signed. How to sign comes from the owner's own configuration, never from the repository's.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.config.git_repo import ask_git
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.text.wording import one_line
from codebutler_worker.forge.remote import (
    SCOPES,
    ForgeError,
    Host,
    git_environment,
    parse_settings,
    refuse_inside,
)
from codebutler_worker.sandbox.process import EndedProgram
from codebutler_worker.tree.tree import UNEXPECTED, Sign

SIGN_S = 60.0
SIGN_KEY = "commit.gpgsign"
KEYS = r"^(commit\.gpgsign|user\.signingkey|gpg\..*)$"
ROLES = ("author", "committer")
OURS = ("i18n.commitEncoding", "UTF-8")
CANNOT_SIGN = (
    "git could not sign the commit: {why}. Make your key usable without a prompt (`ssh-add`, or gpg-agent with its "
    "passphrase), then commit again; or turn signing off with `git config --global commit.gpgSign false`"
)


async def signer_of(settings: RepoSettings) -> Sign | None:
    """Who signs a commit, if the owner signs. Raises CodeButlerError."""
    repo = Path(settings.path)
    method = await asyncio.to_thread(signing_settings, repo)
    return Signer(Host(repo, settings.agent_env), method).sign if method is not None else None


def signing_settings(repo: Path) -> Mapping[str, str] | None:
    """The settings of the user we run as; None if they do not sign. ``includeIf`` counts as in ``repo``, if that is
    theirs. Blocking. Raises CodeButlerError."""
    place = repo if repo.stat().st_uid == os.geteuid() else Path("/")
    values: dict[str, str] = {}
    for scope in SCOPES:
        # It reads no value of the repository, and git runs nothing for it.
        result = ask_git(place, "config", scope, "--includes", "-z", "--show-origin", "--get-regexp", KEYS)
        values |= parse_settings(repo, result.stdout)
    for key, value in values.items():
        if key.endswith("program"):
            refuse_inside(repo, value)
    is_wanted = values.pop(SIGN_KEY, "").lower() in ("true", "yes", "on", "1")
    return values if is_wanted else None


class UnsignedCommit(Struct, frozen=True):
    """A commit to sign. ``content`` is the commit ``commit``, ``tree`` its tree and ``parent`` the commit before it
    (None = it is the first): data from inside the sandbox, which match their IDs."""

    commit: str
    content: bytes
    tree: bytes
    parent: bytes | None = None

    def lines(self, name: str) -> list[str]:
        """The values of its header lines of that name."""
        head = self.content.partition(b"\n\n")[0].decode("utf-8", "surrogateescape")
        return [line.removeprefix(f"{name} ") for line in head.split("\n") if line.startswith(f"{name} ")]


def unsigned_in(output: bytes) -> UnsignedCommit:
    """What the script prints: the ID, then content, tree and parent, each in base64 on its own line. Raises
    CodeButlerError if they do not match."""
    try:
        first, *rest = output.split(b"\n")
        content, tree, parent = [base64.b64decode(line, validate=True) for line in [*rest, b"", b""][:3]]
        found = UnsignedCommit(first.split()[1].decode(), content, tree, parent or None)
    except (ValueError, IndexError, binascii.Error):
        raise CodeButlerError(UNEXPECTED) from None
    wanted = [(found.commit, "commit", content), *((each, "tree", tree) for each in found.lines("tree"))]
    wanted += [(each, "commit", parent) for each in found.lines("parent")]
    if len(found.lines("tree")) != 1 or any(
        object_id(kind, data, name) != name for name, kind, data in wanted
    ):
        raise CodeButlerError(UNEXPECTED)
    return found


def object_id(kind: str, content: bytes, like: str) -> str:
    """The ID of an object with this content, in the same format as the ID ``like``."""
    algorithm = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return algorithm(f"{kind} {len(content)}\0".encode() + content).hexdigest()


def without_signature(content: bytes) -> bytes:
    """A signed commit as it was before."""
    head, end, body = content.partition(b"\n\n")
    kept: list[bytes] = []
    skips = False
    for line in head.split(b"\n"):
        skips = line.startswith((b"gpgsig ", b"gpgsig-sha256 ")) or (skips and line.startswith(b" "))
        if not skips:
            kept.append(line)
    return b"\n".join(kept) + end + body


class Signer(Struct, frozen=True):
    """Signs with these settings (``signing_settings``)."""

    host: Host
    settings: Mapping[str, str]

    async def sign(self, printed: bytes) -> bytes:
        """The signed commit (see ``Sign``). Raises CodeButlerError."""
        commit_data = unsigned_in(printed)
        if any(len(commit_data.lines(role)) != 1 for role in ROLES) or b"\0" in commit_data.content:
            raise ForgeError(UNEXPECTED)
        with tempfile.TemporaryDirectory(prefix="cb-sign-") as place:
            return await self._sign_in(commit_data, Path(place))

    async def _sign_in(self, commit_data: UnsignedCommit, place: Path) -> bytes:
        env = git_environment(place, OURS, *self.settings.items())
        kind = "sha256" if len(commit_data.commit) == 64 else "sha1"
        await self._git(env, "init", "-q", "--bare", "--template=", f"--object-format={kind}", str(place))
        await self.host.refuse_repo_config(env, SIGN_S)
        objects = [
            ("tree", commit_data.tree),
            *([("commit", commit_data.parent)] if commit_data.parent else []),
        ]
        for type_, content in objects:
            await asyncio.to_thread((place / "object").write_bytes, content)
            await self._git(env, "hash-object", "-t", type_, "-w", "--literally", str(place / "object"))
        await asyncio.to_thread((place / "object").write_bytes, commit_data.content.partition(b"\n\n")[2])
        words = ["commit-tree", "-S", "-F", str(place / "object"), *commit_data.lines("tree")]
        for parent in commit_data.lines("parent"):
            words += ["-p", parent]
        made = await self._git({**env, **_identities(commit_data)}, *words)
        commit = made.decode(errors="replace").strip()
        signed = await self._git(env, "cat-file", "commit", commit)
        if object_id("commit", signed, commit) != commit:
            signed += b"\n"  # git's output is returned without the newline at its end
        if signed == commit_data.content or without_signature(signed) != commit_data.content:
            raise ForgeError(CANNOT_SIGN.format(why="it made another commit"))
        return signed

    async def _git(self, env: Mapping[str, str], *words: str) -> bytes:
        ended = await self.host.git(*words, env=env, cwd=Path("/"), limit_s=SIGN_S)
        if ended.code != 0:
            raise ForgeError(CANNOT_SIGN.format(why=_reason(ended)))
        return ended.output


def _identities(commit_data: UnsignedCommit) -> dict[str, str]:
    env: dict[str, str] = {}
    for role in ROLES:
        [identity] = commit_data.lines(role)
        name, _, rest = identity.partition(" <")
        address, _, date = rest.partition("> ")
        who = f"GIT_{role.upper()}"
        env |= {f"{who}_NAME": name, f"{who}_EMAIL": address, f"{who}_DATE": f"@{date}"}
    return env


def _reason(ended: EndedProgram) -> str:
    if ended.code is None:
        return "it waited for something, perhaps a passphrase"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip() and "[GNUPG:]" not in line]
    reasons = [line for line in lines if not line.startswith("fatal: failed to write commit")]
    return one_line((reasons or lines or ["no reason given"])[0].removeprefix("error: ").rstrip("?"), 200)
