"""What hosts ask the gateway, and it answers at once: beats, threads, files piece by piece."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from msgspec import msgpack

from codebutler.cluster.buckets import BusError
from codebutler.cluster.connection import LogLimiter
from codebutler.cluster.leases import Epochs, LeaseLostError
from codebutler.cluster.messages import (
    CLUSTER_VERSION,
    ClusterCodec,
    FetchQuestion,
    FilePiece,
    Granted,
    HostHeartbeat,
    HostQuestion,
    Refused,
    Reply,
    RequestFailed,
    ThreadMessages,
    ThreadQuestion,
    encode,
    incompatibility,
)
from codebutler.config.channels import settings_for_host
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, ProtocolError
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import TotalUse
from codebutler.supervisor.port import Services

PIECE_WAIT_S = 3.0
IDLE_DOWNLOAD_S = 60.0
DOWNLOADS = 32
"""The most downloads at once for one host; the next one waits."""

log = logging.getLogger("codebutler.cluster")


class HostDownload:
    """A file on its way to a host, as fast as the host asks for pieces; it ends if the host stops asking."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[FilePiece | RequestFailed] = asyncio.Queue(1)
        self.latest_number = -1
        self.latest: FilePiece | RequestFailed | None = None
        self.ended = False

    async def run(self, services: Services, repo: RepoSettings, file_id: str, epoch: int) -> None:
        """Fetch the file. Its end, or the error, is the last piece."""
        end: FilePiece | RequestFailed
        try:
            result = await services.fetch(
                repo, file_id, lambda data: self._put(FilePiece(epoch=epoch, data=data))
            )
            end = FilePiece(epoch=epoch, last=True, file=result.file, transcript=result.transcript)
        except CodeButlerError as error:
            code = error.code if isinstance(error, ChatError) else "internal_error"
            end = RequestFailed(epoch=epoch, code=code, text=str(error))
        with suppress(TimeoutError):
            await self._put(end)

    async def _put(self, piece: FilePiece | RequestFailed) -> None:
        async with asyncio.timeout(IDLE_DOWNLOAD_S):
            await self.pieces.put(piece)

    async def piece(self, number: int) -> FilePiece | RequestFailed | None:
        """The piece; None if it has not arrived yet."""
        if number == self.latest_number:
            return self.latest
        try:
            async with asyncio.timeout(PIECE_WAIT_S):
                self.latest = await self.pieces.get()
        except TimeoutError:
            return None
        self.latest_number = number
        return self.latest


class HostQuestions:
    """Answers hosts' questions. ``repos`` returns a host's repositories; ``on_heartbeat`` gets each beat."""

    def __init__(
        self,
        epochs: Epochs,
        services: Services,
        repos: Callable[[str], tuple[RepoSettings, ...]],
        on_heartbeat: Callable[[str, HostHeartbeat], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._log_limiter = LogLimiter()
        self._question: ClusterCodec[HostQuestion] = ClusterCodec(HostQuestion)
        self._epochs = epochs
        self._services = services
        self._repos = repos
        self._on_heartbeat = on_heartbeat
        self.incompatible: dict[str, str] = {}
        """Hosts that are not served because their version does not fit, each with the reason."""
        self._states = 0
        self._totals: dict[tuple[str, str], dict[str, TotalUse]] = {}
        """The totals in this state, by host and assignment."""
        self._downloads: dict[tuple[str, str], HostDownload] = {}
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    async def handle(self, host: str, body: bytes) -> bytes | None:
        """The answer, None if there is none. An unreadable question is logged, at most once a minute for each host."""
        try:
            reply = await self.answer(host, self._question.decode(body))
        except (ProtocolError, BusError) as error:
            if self._log_limiter.admits(host, self._clock.monotonic()):
                log.warning("a question of %s: %s", host, error)
            return None
        return encode(reply) if reply is not None else None

    async def answer(self, host: str, question: HostQuestion) -> Reply | None:
        """The answer; None while we do not lead, since another gateway answers then."""
        if not self._epochs.is_held:
            return None
        if isinstance(question, HostHeartbeat):
            return await self._beat(host, question)
        epoch = self._epochs.epoch
        repo = next((each for each in self._repos(host) if each.name == question.repo), None)
        if repo is None or question.epoch != await self._epochs.hosts.epoch_of(host):
            return RequestFailed(
                epoch=epoch, code="fenced", text=f"{question.repo} is not served by this host"
            )
        if isinstance(question, FetchQuestion):
            return await self._piece(host, repo, question)
        return await self._thread(repo, question)

    def on_use_changed(self) -> None:
        """The use has changed: hosts have to learn the new totals."""
        self._states += 1
        self._totals.clear()

    async def close(self) -> None:
        """Cancel all downloads."""
        await self._tasks.close(0)

    async def _beat(self, host: str, beat: HostHeartbeat) -> Reply:
        epoch = self._epochs.epoch
        if why := incompatibility(beat.version, CLUSTER_VERSION, name=host, release=beat.release):
            if self.incompatible.get(host) != why and self._log_limiter.admits(host, self._clock.monotonic()):
                log.error("refused a host: %s", why)
            self.incompatible[host] = why
            return Refused(epoch=epoch, why=why)
        self.incompatible.pop(host, None)
        try:
            host_epoch = await self._epochs.hosts.grant(host, beat.instance)
        except LeaseLostError as error:
            return Refused(epoch=epoch, why=str(error), for_now=True)
        except BusError as error:
            return RequestFailed(epoch=epoch, code="unreachable", text=str(error))
        self._on_heartbeat(host, beat)
        if beat.leaves:
            self._epochs.hosts.mark_left(host)
        repos = tuple(settings_for_host(each) for each in self._repos(host))
        digest = assignment_digest(repos)
        known, totals = digest == beat.known, f"{epoch} {self._states} {digest}"
        runs = f"{epoch} {digest}"
        return Granted(
            epoch=epoch,
            host_epoch=host_epoch,
            digest=digest,
            repos=None if known else repos,
            totals=None if beat.totals == totals else self._totals_of(host, digest),
            totals_known=totals,
            runs=None if beat.runs == runs else self._runs_of(host),
            runs_known=runs,
        )

    def _runs_of(self, host: str) -> dict[str, str]:
        found = {each.name: self._services.runs_known(each) for each in self._repos(host)}
        return {name: ended for name, ended in found.items() if ended is not None}

    def _totals_of(self, host: str, digest: str) -> dict[str, TotalUse]:
        key = (host, digest)
        if key not in self._totals:
            found = {each.name: self._services.total(each) for each in self._repos(host)}
            self._totals[key] = {name: total for name, total in found.items() if total is not None}
        return self._totals[key]

    async def _piece(self, host: str, repo: RepoSettings, question: FetchQuestion) -> Reply:
        epoch, key = self._epochs.epoch, (host, question.request)
        download = self._downloads.get(key)
        if download is None:
            if question.number:
                return RequestFailed(
                    epoch=epoch, code="unreachable", text="the gateway has changed: try again"
                )
            if sum(of == host and not each.ended for (of, _), each in self._downloads.items()) >= DOWNLOADS:
                await asyncio.sleep(PIECE_WAIT_S)
                return RequestFailed(epoch=epoch, code="wait", text="")
            download = self._downloads[key] = HostDownload()
            self._tasks.start(self._download(key, repo, question.file_id, epoch), name=f"download for {host}")
        piece = await download.piece(question.number)
        return piece or RequestFailed(epoch=epoch, code="wait", text="")

    async def _download(self, key: tuple[str, str], repo: RepoSettings, file_id: str, epoch: int) -> None:
        """Keep its end for a while, in case the host did not get it."""
        download = self._downloads[key]
        try:
            await download.run(self._services, repo, file_id, epoch)
            download.ended = True
            await asyncio.sleep(IDLE_DOWNLOAD_S)
        finally:
            del self._downloads[key]

    async def _thread(self, repo: RepoSettings, question: ThreadQuestion) -> Reply:
        epoch = self._epochs.epoch
        try:
            messages, left_out = await self._services.thread(repo, question.thread, question.before)
        except ChatError as error:
            return RequestFailed(epoch=epoch, code=error.code, text=str(error))
        return ThreadMessages(epoch=epoch, messages=messages, left_out=left_out)


def assignment_digest(repos: tuple[RepoSettings, ...]) -> str:
    """A digest of an assignment, the same whenever the assignment is."""
    return sha256(msgpack.encode(repos)).hexdigest()
