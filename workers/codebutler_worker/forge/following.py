"""Follows pull requests after ``!pr``: reports check results and review comments once, in the thread they came from.

A row stores what has been reported for each pull request. The report and its record are one transaction, so a restart
neither loses news nor repeats it. Each poll asks for everything that counts; the responses are untrusted.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.domain.message import Message
from codebutler.domain.refs import NO_PERSON, NOWHERE, PersonRef
from codebutler.platform.tasks import wait_for
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.forge import news
from codebutler_worker.forge.api import Pull, PullChecks, PullComment, Service
from codebutler_worker.forge.push import OpenedPull, service_of
from codebutler_worker.forge.remote import ForgeError, Remote, validate_remote
from codebutler_worker.present.lines import visible
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import DeferredRow, PullNewsRow, PullRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, iso

FIRST_PAUSE_S, MAX_PAUSE_S, GROWTH = 15.0, 300.0, 1.5
WEBHOOK_MAX_PAUSE_S = 1800.0
"""Between two polls if the service tells us of news by a webhook."""
WEBHOOK_PAUSE_S, WEBHOOK_ANY_PAUSE_S = 5.0, 30.0
"""From such news to the poll: of this pull request, or of any of them. Many come at once."""
POLL_LIMIT_S = 180.0
"""The longest that one poll may take."""
MAX_SLEEP_S = 60.0
"""The longest sleep before checking the clock again: it may be set, and the machine may sleep."""
STORE_RETRY_S = 5.0
FAILURES_REPORTED = 3
MAX_NEWS = 50
"""A hostile service may invent news forever."""
MAX_LOGS = 3
NEWS_KEPT = timedelta(days=7)
TROUBLE = "⚠️ Cannot check {link}: {why}. I will keep trying for {hours:g} hours."
TOO_MUCH_ACTIVITY = "No longer following {link}: there is too much activity. Say `!pr` to follow it again."
ENDED = {"merged": "🔀 {link} was merged.", "closed": "{link} was closed."}
_ANY = "SELECT EXISTS (SELECT 1 FROM pulls WHERE state = 'open')"


class PollResult(Struct, frozen=True):
    """The result of one poll. ``logs`` are of the failed checks, redacted; ``trouble``: why it is incomplete."""

    pull: Pull
    checks: PullChecks
    logs: tuple[tuple[str, str], ...] = ()
    comments: tuple[PullComment, ...] = ()
    trouble: str = ""


def follow(
    uow: UnitOfWork, settings: RepoSettings, command: DeferredRow, remote: Remote, opened: OpenedPull
) -> None:
    """Follow it from now on, in the thread where the command was sent. What is already known of it is kept."""
    hours, pull = settings.config.forge.follow_hours, opened.pull
    if not hours:
        return
    pull_id = f"{remote.shown}#{pull.number}"
    known = uow.pulls.get(pull_id)
    row = PullRow(
        id=pull_id,
        conversation=command.conversation,
        thread=command.thread or NOWHERE,
        user_id=command.user_id,
        remote=remote.url,
        url=pull.url,
        number=pull.number,
        next_at=iso(uow.now + timedelta(seconds=FIRST_PAUSE_S)),
        until=iso(uow.now + timedelta(hours=hours)),
        checks=known.checks if known else "",
        told=known.told if known else "",
        seen=known.seen if known else "{}" if opened.is_new else "",
    )
    uow.pulls.add(row, known="replace")


class PullFollower:
    """Polls the followed pull requests; ``run`` runs until cancelled. ``followed``: how many there are now. They keep
    the worker awake, since a sleeping one would not poll."""

    def __init__(self, runtime: Runtime, load_changed: Callable[[], None]) -> None:
        self.followed = 0
        self._runtime = runtime
        self._load_changed = load_changed
        self._max_pause_s = MAX_PAUSE_S

    async def poll_soon(self, numbers: Collection[int]) -> None:
        """There is news of these, none = of any: poll soon. From now on it may take longer without news."""
        self._max_pause_s = WEBHOOK_MAX_PAUSE_S
        await self._runtime.commit(partial(poll_soon, numbers=numbers))
        self._runtime.followed.set()

    def look(self, load: tuple[int, int, int]) -> None:
        """Does nothing: the worker's load says nothing about pull requests."""

    async def run(self) -> None:
        """Run until cancelled."""
        runtime = self._runtime
        while True:
            runtime.followed.clear()
            try:
                next_s = await self._poll_due()
            except StoreError as error:
                runtime.log("WRN", f"pull requests are waiting for the store: {error}")
                next_s = STORE_RETRY_S
            await wait_for(runtime.clock, runtime.followed, next_s)

    async def _poll_due(self) -> float | None:
        """Seconds until the next poll, None if there is nothing to follow."""
        runtime = self._runtime
        if not await runtime.store.exists(_ANY):
            return self._update_followed([], runtime.clock.now())
        for row in await runtime.commit(lambda uow: uow.pulls.find(state="open")):
            if row.next_at <= iso(runtime.clock.now()):
                await self._poll_one(row)
        rows = await runtime.commit(lambda uow: uow.pulls.find(state="open"))
        return self._update_followed(rows, runtime.clock.now())

    def _update_followed(self, rows: Sequence[PullRow], now: datetime) -> float | None:
        if len(rows) != self.followed:
            self.followed = len(rows)
            self._load_changed()
        ahead = [(datetime.fromisoformat(row.next_at) - now).total_seconds() for row in rows]
        return max(0.0, min(MAX_SLEEP_S, *ahead)) if ahead else None

    async def _poll_one(self, row: PullRow) -> None:
        runtime = self._runtime
        try:
            remote = _remote_of(runtime.settings, row)
            service = service_of(runtime.settings, remote, runtime.home.root)
            if service is None:
                raise ForgeError("no longer logged in to the service")
            async with asyncio.timeout(POLL_LIMIT_S):
                found = await poll(service, row, runtime.redactor.redact)
            result = partial(report, row=row, remote=remote, found=found, max_pause_s=self._max_pause_s)
            await runtime.commit(partial(result, settings=runtime.settings))
        except StoreError:
            raise
        except (CodeButlerError, TimeoutError) as error:
            await self._on_failure(row, str(error) or "the service does not answer in time")
        except Exception as error:  # noqa: BLE001 - whatever a hostile service answers, the worker lives on
            runtime.log("ERR", f"following {row.id} broke: {runtime.redactor.redact(repr(error)[:300])}")
            await self._on_failure(row, "it sent an unexpected answer")

    async def _on_failure(self, row: PullRow, why: str) -> None:
        runtime = self._runtime
        reason = runtime.redactor.redact(one_line(why, 300))
        await runtime.commit(partial(report_trouble, settings=runtime.settings, row=row, why=reason))
        runtime.log("WRN", f"cannot check {row.id}: {reason}")


def _remote_of(settings: RepoSettings, row: PullRow) -> Remote:
    return validate_remote(row.remote, Path(settings.path), settings.config.git.local_remotes)


async def poll(service: Service, row: PullRow, redact: Callable[[str], str]) -> PollResult:
    """Everything that counts about a pull request. Raises ForgeError."""
    pull = await service.get(row.number)
    checks, trouble = PullChecks("pending"), ""
    logs: tuple[tuple[str, str], ...] = ()
    if pull.state == "open":
        try:
            checks = await service.checks(pull)
        except ForgeError as error:
            trouble = str(error)
    named = [replace(job, name=redact(job.name)) for job in checks.failed[: news.NAMES_SHOWN]]
    unnamed = [replace(job, name="", details="") for job in checks.failed[len(named) :]]
    checks = replace(checks, failed=(*named, *unnamed))
    if checks.state == "failed" and row.told != _checks_key(pull, checks):
        texts = [(await service.log(job)).decode(errors="replace") for job in checks.failed[:MAX_LOGS]]
        logs = tuple((job.name, redact(text)) for job, text in zip(checks.failed, texts, strict=False))
    seen_ids = msgspec.json.decode(row.seen, type=dict[str, int]) if row.seen else {}
    comments = _redact_comments(await service.comments(row.number, seen_ids), redact)
    return PollResult(pull, checks, logs, comments, trouble)


def _redact_comments(
    comments: Sequence[PullComment], redact: Callable[[str], str]
) -> tuple[PullComment, ...]:
    """The comments, redacted; those that are not shown count, but without their text."""
    cleaned, shown_count = [], 0
    for each in comments:
        is_shown = shown_count < news.COMMENTS_SHOWN and bool(each.text.strip())
        shown_count += is_shown
        text = redact(each.text) if is_shown else "…" if each.text.strip() else ""
        author, place = (redact(each.author), redact(each.place)) if is_shown else ("", "")
        cleaned.append(replace(each, author=author, text=text, place=place))
    return tuple(cleaned)


def _checks_key(pull: Pull, checks: PullChecks) -> str:
    return f"{pull.commit[:64]} {checks.key}"


def poll_soon(uow: UnitOfWork, numbers: Collection[int]) -> None:
    """Poll these soon, none = all."""
    soon_at = iso(uow.now + timedelta(seconds=WEBHOOK_PAUSE_S if numbers else WEBHOOK_ANY_PAUSE_S))
    for row in uow.pulls.find(state="open"):
        if (not numbers or row.number in numbers) and row.next_at > soon_at:
            uow.pulls.add(replace(row, next_at=soon_at), known="replace")


def report(
    uow: UnitOfWork,
    settings: RepoSettings,
    row: PullRow,
    remote: Remote,
    found: PollResult,
    max_pause_s: float = MAX_PAUSE_S,
) -> None:
    """Report what is new since the last poll, and record that it was reported."""
    row = uow.pulls.get(row.id) or row
    pull, checks, link = found.pull, found.checks, news.pull_link(remote, found.pull)
    name, key = news.pull_name(remote, pull), _checks_key(pull, checks)
    # Checks of a new commit start soon, and a second look tells whether all have ended.
    before, looks = row, row.looks + 1 if key == row.checks else 0
    row = replace(row, checks=key, looks=looks, url=pull.url[:500])
    if pull.state != "open":
        _post(uow, row, Message(markdown=ENDED[pull.state].format(link=link)))
        uow.pulls.add(replace(row, state=pull.state), known="replace")
        return
    if checks.state == "failed" and row.told != key:
        row = _post_news(uow, row, lambda news_id: news.failed_message(link, checks, found.logs[0][1], news_id),
                        news.fix_prompt(name, pull, checks, found.logs))  # fmt: skip
        row = replace(row, told=key)
    # Checks start one after another: all known ones may have passed before the next one starts.
    if checks.state == "passed" and row.told != key and before.checks == key:
        _post(uow, row, news.passed_message(link, checks))
        row = replace(row, told=key, news=row.news + 1)
    new_comments = [each for each in found.comments if each.text.strip()] if row.seen else []
    if new_comments:
        message = partial(news.comments_message, link, new_comments)
        row = _post_news(uow, row, message, news.comments_prompt(name, new_comments))
    row = replace(row, seen=_seen_ids(row, found.comments))
    if row.news > before.news:
        row = replace(row, until=iso(uow.now + timedelta(hours=settings.config.forge.follow_hours)))
    if found.trouble:
        _schedule_next(uow, settings, replace(row, failures=before.failures), found.trouble)
        return
    _schedule_next(uow, settings, row, max_pause_s=max_pause_s)


def report_trouble(uow: UnitOfWork, settings: RepoSettings, row: PullRow, why: str) -> None:
    """The poll failed."""
    row = uow.pulls.get(row.id) or row
    _schedule_next(uow, settings, replace(row, looks=row.looks + 1), why)


def _schedule_next(
    uow: UnitOfWork, settings: RepoSettings, row: PullRow, trouble: str = "", max_pause_s: float = MAX_PAUSE_S
) -> None:
    """Report trouble if it lasts, and set the next poll."""
    remote, hours = _remote_of(settings, row), settings.config.forge.follow_hours
    link = news.pull_link(remote, Pull(row.number, row.url))
    row = replace(row, failures=row.failures + 1 if trouble else 0)
    if row.failures == FAILURES_REPORTED:
        _post(uow, row, Message(markdown=TROUBLE.format(link=link, why=plain(visible(trouble)), hours=hours)))
        row = replace(row, news=row.news + 1)
    if row.news >= MAX_NEWS:
        _post(uow, row, Message(markdown=TOO_MUCH_ACTIVITY.format(link=link)))
        row = replace(row, state="left", news=0)
    elif iso(uow.now) >= row.until:
        row = replace(row, state="left")
    pause_s = min(FIRST_PAUSE_S * GROWTH ** min(row.looks, 20), max_pause_s)
    uow.pulls.add(replace(row, next_at=iso(uow.now + timedelta(seconds=pause_s))), known="replace")


def _post(
    uow: UnitOfWork, row: PullRow, message: Message, mention: PersonRef = NO_PERSON, op_id: str | None = None
) -> None:
    place = ThreadPlace(row.conversation, row.thread or None)
    uow.post(place, message, mention=mention, op_id=op_id, value="notice")


def news_operation_id(news_id: str) -> str:
    """The operation that posted the news."""
    return f"news-{news_id}"


def _post_news(uow: UnitOfWork, row: PullRow, message: Callable[[str], Message], task: str) -> PullRow:
    """Post news that a person may hand over to an agent."""
    news_id = hashlib.sha256(f"{row.id} {row.news} {uow.stamp}".encode()).hexdigest()[:24]
    uow.raw.execute("DELETE FROM pull_news WHERE created_at < ?", (iso(uow.now - NEWS_KEPT),))
    uow.pull_news.add(PullNewsRow(news_id, row.id, task, uow.stamp), known="replace")
    _post(uow, row, message(news_id), mention=row.user_id, op_id=news_operation_id(news_id))
    return replace(row, news=row.news + 1)


def _seen_ids(row: PullRow, comments: Sequence[PullComment]) -> str:
    seen = msgspec.json.decode(row.seen, type=dict[str, int]) if row.seen else {}
    for each in comments:
        seen[each.kind] = max(seen.get(each.kind, 0), each.id)
    return msgspec.json.encode(seen).decode()
