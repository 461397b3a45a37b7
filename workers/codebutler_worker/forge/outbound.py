"""The repository that pushes: our own bare one, beside the checkout that agents write to.

Git on the host never opens that checkout. Commits leave it as a pack made inside the sandbox; here they are only
data. Other settings, such as where to push and which helpers not to start, go into git's environment; the owner's own
configuration (credential helpers, ``insteadOf``, ``core.sshCommand``) applies as usual.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from pathlib import Path

from msgspec import Struct

from codebutler.config.resolve import mask_text
from codebutler_worker.forge.remote import ForgeError, Host, Remote, git_environment
from codebutler_worker.sandbox.process import EndedProgram
from codebutler_worker.tree.tree import COMMIT_ID, UNEXPECTED

LOCAL_S = 300.0
REMOTE_S = 300.0
PACK_BYTES = 4 * 2**30
PUSHED_REFS, PUSHING_REFS = "refs/pushed/", "refs/pushing/"
FETCHED_REFS, IMPORTED_REFS = "refs/fetched/", "refs/taken/"
REMOTE = "codebutler"
_LINK = re.compile(r"^remote:\s+(https://\S+)\s*$", re.MULTILINE)
_REMOTE_LINE = re.compile(r"^remote: .*$", re.MULTILINE)
TOO_LARGE = "these commits are too large to be pushed from here: push them once yourself"
OUT_OF_MEMORY = "attempting to allocate"
"""Git's error for an object that needs more memory than git may use."""
STALE_LEASE = (
    "`{branch}` has commits on the remote that were not pushed from here, so nothing was overwritten. "
    "To overwrite them, force-push from your own terminal"
)
BEHIND = (
    "`{branch}` has commits on the remote that are not in this repository: pull them first, "
    "or say `!push force` if only CodeButler has pushed to it"
)


class RemoteState(Struct, frozen=True):
    """The remote's state: its default branch ("" = unknown), and the commits of that and of the requested
    branch ("" = no such branch)."""

    default: str
    default_tip: str
    tip: str


class Pack:
    """A file that receives a pack piece by piece, up to a maximum size."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")
        self._room_bytes = PACK_BYTES

    def write(self, piece: bytes) -> None:
        """Raises ForgeError if it is too large."""
        self._room_bytes -= len(piece)
        if self._room_bytes < 0:
            raise ForgeError(TOO_LARGE)
        self._file.write(piece)

    def close(self) -> None:
        """The pack is complete."""
        self._file.close()


class Outbound:
    """The outbound repository of one checkout. Every method raises ForgeError."""

    def __init__(self, directory: Path, remote: Remote, host: Host) -> None:
        self._directory = directory
        self._remote = remote
        self._host = host
        self._env = environment(directory, remote)

    async def prepare(self, commit: str) -> None:
        """Create it, with the same object format as ``commit``. The owner's own configuration counts for all that
        follows, so none of it may be where agents write."""
        if not (self._directory / "HEAD").exists():
            await asyncio.to_thread(self._directory.mkdir, 0o700, parents=True, exist_ok=True)
            kind = "sha256" if len(commit) == 64 else "sha1"
            await self._git("init", "-q", "--bare", "--template=", f"--object-format={kind}")
        await self._host.refuse_repo_config(self._env, LOCAL_S)

    async def known_commits(self) -> list[str]:
        """The newest commits it has."""
        refs = ("for-each-ref", "--sort=-creatordate", "--count=50", "--format=%(objectname)")
        return (await self._git(*refs)).split()

    def pack(self) -> Pack:
        """The path for a pack that is not imported yet."""
        place = self._directory / "objects" / "pack"
        place.mkdir(parents=True, exist_ok=True)
        return Pack(place / f"pack-{secrets.token_hex(20)}.pack")

    async def import_pack(self, pack: Pack, commit: str) -> None:
        """Import a pack, which must contain everything ``commit`` needs."""
        try:
            await self._git("index-pack", str(pack.path))
            if await self._git("cat-file", "-t", commit) != "commit":
                raise ForgeError(UNEXPECTED)
            await self._git("rev-list", "--objects", "--quiet", commit, "--not", "--all")
        except ForgeError as error:
            for path in (pack.path, pack.path.with_suffix(".idx")):
                path.unlink(missing_ok=True)
            if OUT_OF_MEMORY in str(error):
                raise ForgeError(TOO_LARGE) from None
            raise ForgeError(
                f"the commits cannot be read completely ({error}): in a shallow or partial clone run "
                "`git fetch --unshallow` or push them yourself"
            ) from None
        await self._git("update-ref", IMPORTED_REFS + commit, commit)

    async def has(self, commit: str) -> bool:
        """Whether everything is already imported."""
        if (await self._run("cat-file", "-e", commit)).code != 0:
            return False
        return (await self._run("rev-list", "--objects", "--quiet", commit, "--not", "--all")).code == 0

    async def fetch_state(self, branch: str) -> RemoteState:
        """Query the remote, and fetch what is new on these two branches."""
        output = await self._git("ls-remote", "--symref", "--", REMOTE, limit_s=REMOTE_S)
        tips, default = {}, ""
        for line in output.splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: refs/heads/") and name == "HEAD":
                default = value.removeprefix("ref: refs/heads/")
            elif COMMIT_ID.fullmatch(value):
                tips[name] = value
        state = RemoteState(
            default, tips.get(f"refs/heads/{default}", ""), tips.get(f"refs/heads/{branch}", "")
        )
        refspecs = [
            f"+refs/heads/{name}:{FETCHED_REFS}{ref_name(name)}"
            for name, tip in ((default, state.default_tip), (branch, state.tip))
            if tip
        ]
        if refspecs:
            quiet = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
            await self._git("fetch", *quiet, "--", REMOTE, *dict.fromkeys(refspecs), limit_s=REMOTE_S)
        return state

    async def push(self, commit: str, branch: str, tip: str, *, force: bool) -> str:
        """Push ``commit`` to ``branch``, which is at ``tip``; with ``force``, replace a branch that was created from
        here and holds nothing else. Returns the remote's page to open a pull request, "" if it names none."""
        target, pushed_tip = f"refs/heads/{branch}", await self._resolve(PUSHED_REFS + ref_name(branch))
        if force and tip and pushed_tip != tip:
            raise ForgeError(STALE_LEASE.format(branch=branch))
        lease = (f"--force-with-lease={target}:{tip}",) if force else ()
        quiet = ("--porcelain", "--no-verify", "--no-recurse-submodules", "--no-follow-tags")
        is_ours = pushed_tip == tip  # both "": there is no such branch yet
        if is_ours:
            await self._git("update-ref", PUSHING_REFS + ref_name(branch), commit)
        ended = await self._run("push", *quiet, *lease, "--", REMOTE, f"{commit}:{target}", limit_s=REMOTE_S)
        if ended.code != 0:
            output = ended.output.decode(errors="replace")
            raise ForgeError(self._explain_rejection(ended, output, branch, force=force))
        if is_ours:
            await self._git("update-ref", PUSHED_REFS + ref_name(branch), commit)
        page = f"https://{self._remote.web}/"
        links = (link for link in _LINK.findall(ended.stderr) if link.startswith(page) and len(link) < 500)
        return next(links, "")

    async def record_pushed(self, commit: str, branch: str) -> None:
        """The remote has it: an earlier worker may have pushed it without learning the outcome."""
        if await self._resolve(PUSHING_REFS + ref_name(branch)) == commit:
            await self._git("update-ref", PUSHED_REFS + ref_name(branch), commit)

    async def _resolve(self, ref: str) -> str:
        return (await self._run("rev-parse", "-q", "--verify", ref)).output.decode().strip()

    async def commits(self, commit: str, base: str) -> list[tuple[str, str]]:
        """(short ID, subject) of the commits of ``commit`` since ``base``, oldest first."""
        exclude = ("--not", base) if base else ()
        words = ("log", "--reverse", "--max-count=200", "--format=%h%x09%s", commit, *exclude)
        output = await self._git(*words)
        return [(found[0], found[2]) for line in output.splitlines() if (found := line.partition("\t"))[2]]

    async def stat(self, commit: str, base: str) -> str:
        """The changes since ``base``, as git summarises them."""
        if not base:
            return ""
        plain = ("--stat=80", "--no-color", "--no-ext-diff", "--no-textconv")
        return await self._git("diff", *plain, f"{base}...{commit}", "--")

    async def _git(self, *words: str, limit_s: float = LOCAL_S) -> str:
        ended = await self._run(*words, limit_s=limit_s)
        if ended.code != 0:
            raise ForgeError(_git_error(ended))
        return ended.output.decode(errors="replace").strip()

    async def _run(self, *words: str, limit_s: float = LOCAL_S) -> EndedProgram:
        return await self._host.git(*words, env=self._env, cwd=self._directory, limit_s=limit_s)

    def _explain_rejection(self, ended: EndedProgram, output: str, branch: str, *, force: bool) -> str:
        if "(stale info)" in output:
            return STALE_LEASE.format(branch=branch)
        if "(fetch first)" in output or "(non-fast-forward)" in output:
            return (STALE_LEASE if force else BEHIND).format(branch=branch)
        rejected = re.search(r"^!\t.*\t\[(?:remote )?rejected\] \((.*)\)$", output, re.MULTILINE)
        remote_lines = [line.removeprefix("remote:").strip() for line in _REMOTE_LINE.findall(ended.stderr)]
        if rejected:
            reason = " ".join(line for line in remote_lines if line)[-300:]
            return mask_text(
                f"{self._remote.shown} refused it ({rejected[1]}){f': {reason}' if reason else ''}"
            )
        return f"{self._remote.shown} did not accept it: {_git_error(ended)}"


def _git_error(ended: EndedProgram) -> str:
    if ended.code is None:
        return "git took too long"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    error = (errors or lines[-1:] or [""])[0]
    return mask_text(error.removeprefix("fatal: ")[:300]) or f"git ended with exit code {ended.code}"


def ref_name(branch: str) -> str:
    """The name of a branch in one of our refs, encoded so that names never collide."""
    return hashlib.sha256(branch.encode()).hexdigest()[:32]


def environment(directory: Path, remote: Remote) -> dict[str, str]:
    """Variables added to the owner's environment: the repository, where to push, which helpers not to start."""
    return git_environment(directory, (f"remote.{REMOTE}.url", remote.url)) | {
        "GIT_ALLOW_PROTOCOL": "file" if remote.kind == "file" else "https:ssh",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_NO_LAZY_FETCH": "1",
    }
