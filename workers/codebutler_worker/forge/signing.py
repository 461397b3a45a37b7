"""Signs commits that are made from chat, with the owner's key, outside the sandbox.

Git signs, in an empty bare repository that exists for this one commit: it gets the commit's tree and parent as data and
makes the same commit again, signed. How to sign comes from the owner's own configuration, never from the repository's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.git_repo import ask_git
from codebutler_worker.forge.host import SCOPES, Host, git_environment, keep_out, settings_in
from codebutler_worker.forge.remote import ForgeError
from codebutler_worker.present.lines import one_line
from codebutler_worker.programs.process import EndedProgram
from codebutler_worker.tree.unsigned import UnsignedCommit, object_id, without_signature

SIGN_S = 60.0
WANTED = "commit.gpgsign"
KEYS = r"^(commit\.gpgsign|user\.signingkey|gpg\..*)$"
ROLES = ("author", "committer")
OURS = ("i18n.commitEncoding", "UTF-8")
CANNOT = (
    "git could not sign the commit: {why}. Make your key usable without a prompt (`ssh-add`, or gpg-agent with its "
    "passphrase), then commit again; or turn signing off with `git config --global commit.gpgSign false`"
)


def how_to_sign(repo: Path) -> Mapping[str, str] | None:
    """The settings of the user we run as; None if they do not sign. ``includeIf`` counts as in ``repo``, if that is
    theirs. Blocking. Raises CodeButlerError."""
    place = repo if repo.stat().st_uid == os.geteuid() else Path("/")
    found: dict[str, str] = {}
    for scope in SCOPES:
        # It reads no value of the repository, and git runs nothing for it.
        asked = ask_git(place, "config", scope, "--includes", "-z", "--show-origin", "--get-regexp", KEYS)
        found |= settings_in(repo, asked.stdout)
    for key, value in found.items():
        if key.endswith("program"):
            keep_out(repo, value)
    is_wanted = found.pop(WANTED, "").lower() in ("true", "yes", "on", "1")
    return found if is_wanted else None


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with these settings (``how_to_sign``)."""

    host: Host
    settings: Mapping[str, str]

    async def sign(self, made: UnsignedCommit) -> bytes:
        """The signed commit. Raises ForgeError."""
        if any(len(made.lines(role)) != 1 for role in ROLES) or b"\0" in made.content:
            raise ForgeError("git gave an unexpected answer")
        with tempfile.TemporaryDirectory(prefix="cb-sign-") as place:
            return await self._signed(made, Path(place))

    async def _signed(self, made: UnsignedCommit, place: Path) -> bytes:
        env = git_environment(place, OURS, *self.settings.items())
        kind = "sha256" if len(made.commit) == 64 else "sha1"
        await self._git(env, "init", "-q", "--bare", "--template=", f"--object-format={kind}", str(place))
        await self.host.keep_to_owner(env, SIGN_S)
        objects = [("tree", made.tree), *([("commit", made.parent)] if made.parent else [])]
        for type_, content in objects:
            await asyncio.to_thread((place / "object").write_bytes, content)
            await self._git(env, "hash-object", "-t", type_, "-w", "--literally", str(place / "object"))
        await asyncio.to_thread((place / "object").write_bytes, made.content.partition(b"\n\n")[2])
        words = ["commit-tree", "-S", "-F", str(place / "object"), *made.lines("tree")]
        for parent in made.lines("parent"):
            words += ["-p", parent]
        ended = await self._run({**env, **_people(made)}, *words)
        if ended.code != 0:
            raise ForgeError(CANNOT.format(why=_why(ended)))
        commit = ended.output.decode(errors="replace").strip()
        signed = await self._git(env, "cat-file", "commit", commit)
        if object_id("commit", signed, commit) != commit:
            signed += b"\n"  # git's output is returned without the newline at its end
        if signed == made.content or without_signature(signed) != made.content:
            raise ForgeError(CANNOT.format(why="it made another commit"))
        return signed

    async def _git(self, env: Mapping[str, str], *words: str) -> bytes:
        ended = await self._run(env, *words)
        if ended.code != 0:
            raise ForgeError(CANNOT.format(why=_why(ended)))
        return ended.output

    async def _run(self, env: Mapping[str, str], *words: str) -> EndedProgram:
        return await self.host.git(*words, env=env, cwd=Path("/"), limit_s=SIGN_S)


def _people(made: UnsignedCommit) -> dict[str, str]:
    env: dict[str, str] = {}
    for role in ROLES:
        [said] = made.lines(role)
        name, _, rest = said.partition(" <")
        address, _, date = rest.partition("> ")
        who = f"GIT_{role.upper()}"
        env |= {f"{who}_NAME": name, f"{who}_EMAIL": address, f"{who}_DATE": f"@{date}"}
    return env


def _why(ended: EndedProgram) -> str:
    if ended.code is None:
        return "it waited for something, perhaps a passphrase"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip() and "[GNUPG:]" not in line]
    told = [line for line in lines if not line.startswith("fatal: failed to write commit")]
    return one_line((told or lines or ["no reason given"])[0].removeprefix("error: ").rstrip("?"), 200)
