"""A chat in memory behind the ChatPort, with faults to script, and with as many capabilities as wanted: for tests and
for trying things out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from codebutler.chat.layout import ReasonForm, Section
from codebutler.chat.port import CAPABILITIES, Capabilities, Download, HistoryPage, Identity, OwnPage, Take
from codebutler.chat.slack.answers import operation_metadata, own_in
from codebutler.chat.slack.api import SLACK_LIMITS
from codebutler.chat.slack.history import page_in
from codebutler.chat.slack.mrkdwn import neutralise
from codebutler.chat.slack.render import blocks_of, rendered
from codebutler.domain.errors import ChatError
from codebutler.domain.model import File, Operation, Post, React, Update, Upload
from codebutler.domain.refs import MessageRef

ME = Identity(user_id="U0BUTLER", bot_id="B0BUTLER", team_id="T0MEMORY", team="Memory")


@dataclass(frozen=True, slots=True)
class Done:
    """A call that took effect: in which channel, what, and the new message's ts or file's id."""

    channel: str
    operation: Operation
    result: str = ""


@dataclass(slots=True)
class _Fault:
    error: ChatError
    after: bool


@dataclass(slots=True)
class _File:
    name: str
    content: bytes
    shown_in: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Channel:
    messages: list[dict[str, Any]] = field(default_factory=list)
    reactions: set[tuple[str, str]] = field(default_factory=set)


class MemoryChat:
    """ChatPort and all capabilities but what it ``lacks`` (fields of Capabilities), without a network.

    Methods are named as in the port. ``done`` lists every effect in order; ``calls`` every attempt by name.
    """

    def __init__(self, identity: Identity = ME, page_size: int = 200, lacks: Collection[str] = ()) -> None:
        self.limits = SLACK_LIMITS
        self.capabilities = Capabilities(**dict.fromkeys(CAPABILITIES - set(lacks), self))
        self.me = identity
        self.page_size = page_size
        self.done: list[Done] = []
        self.calls: list[str] = []
        self.homes: dict[str, list[dict[str, Any]]] = {}
        self.triggers: dict[str, str] = {}
        self.forms: dict[str, ReasonForm] = {}
        self.statuses: dict[tuple[str, str], str] = {}
        self.streaming: set[str] = set()
        self._files: dict[str, _File] = {}
        self._channels: dict[str, _Channel] = {}
        self._faults: dict[str, list[_Fault]] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._counter = 0
        self._news = asyncio.Event()

    def fail_next(self, method: str, error: ChatError, times: int = 1) -> None:
        """The next ``times`` calls of ``method`` raise ``error`` and have no effect."""
        self._faults.setdefault(method, []).extend(_Fault(error, after=False) for _ in range(times))

    def deliver_then_fail(self, method: str, error: ChatError) -> None:
        """The next call of ``method`` takes effect and raises ``error`` all the same."""
        self._faults.setdefault(method, []).append(_Fault(error, after=True))

    def heal(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()

    def hold(self, method: str) -> None:
        """Calls of ``method`` wait, before any effect, until ``release``."""
        self._held[method] = asyncio.Event()

    def release(self, method: str) -> None:
        """Let the held calls of ``method`` go on."""
        self._held.pop(method).set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; looked at after every call. Put a deadline around it."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    def say(
        self, channel: str, user: str, text: str, *, thread_ts: str | None = None, ts: str | None = None
    ) -> MessageRef:
        """Somebody writes a message; returns its ts (chosen if not given). As in Slack, only a message that
        was said can be answered in its thread or reacted to."""
        message: dict[str, Any] = {"type": "message", "user": user, "text": text}
        return self._append(channel, message, thread_ts, ts)

    def find(self, ts: str) -> dict[str, Any]:
        """A message itself, to change what history tells of it. Raises ChatError if there is none."""
        for channel in self._channels:
            with suppress(ChatError):
                return self._find(channel, ts)
        raise ChatError(code="message_not_found")

    def discard_uploads(self) -> None:
        """What was uploaded and not shared is gone, as in Slack after a while."""
        self._files = {file_id: stored for file_id, stored in self._files.items() if stored.shown_in}

    def forget(self, ts: str) -> None:
        """Somebody deletes a message."""
        for channel in self._channels.values():
            channel.messages = [message for message in channel.messages if message["ts"] != ts]

    def messages(self, channel: str) -> list[dict[str, Any]]:
        """Every message of a channel and its threads, oldest first."""
        return [dict(message) for message in self._channel(channel).messages]

    def texts(self, channel: str) -> list[str]:
        """The texts of our own messages in a channel, oldest first."""
        return [m["text"] for m in self._channel(channel).messages if m.get("user") == self.me.user_id]

    def marks(self, channel: str, ts: str) -> set[str]:
        """Our reactions on a message."""
        return {name for target, name in self._channel(channel).reactions if target == ts}

    async def identity(self) -> Identity:
        fault = await self._begin("identity")
        self._end(fault)
        return self.me

    async def post(self, channel: str, post: Post, op_id: str) -> MessageRef:
        fault = await self._begin("post")
        message = self._own(**_shown(post), metadata=operation_metadata(op_id))
        ts = self._append(channel, message, post.thread)
        self.statuses.pop((channel, post.thread or ""), None)
        self.done.append(Done(channel, post, ts))
        self._end(fault)
        return ts

    async def whisper(self, channel: str, post: Post) -> MessageRef:
        """It is in ``done`` and in no history."""
        fault = await self._begin("whisper")
        self._counter += 1
        ts = MessageRef(f"1767225600.{self._counter:06d}")
        self.done.append(Done(channel, post, ts))
        self._end(fault)
        return ts

    async def update(self, channel: str, update: Update, op_id: str) -> None:
        """Refuses what is somebody else's (cant_update_message)."""
        fault = await self._begin("update")
        message = self._find(channel, update.target)
        if message.get("user") != self.me.user_id:
            raise ChatError(code="cant_update_message")
        message.update(_shown(update))
        self.done.append(Done(channel, update))
        self._end(fault)

    async def react(self, channel: str, react: React) -> None:
        fault = await self._begin("react")
        self._find(channel, react.target)
        reactions = self._channel(channel).reactions
        (reactions.discard if react.remove else reactions.add)((react.target, react.mark))
        self.done.append(Done(channel, react))
        self._end(fault)

    async def upload(self, upload: Upload) -> str:
        fault = await self._begin("upload")
        self._counter += 1
        file_id = f"F{self._counter:08d}"
        self._files[file_id] = _File(upload.filename, upload.content)
        self._end(fault)
        return file_id

    async def share(self, channel: str, upload: Upload, file_id: str) -> None:
        fault = await self._begin("share")
        stored = self._files.get(file_id)
        if stored is None or stored.shown_in:
            raise ChatError(code="file_not_found")
        title = upload.title or stored.name
        file = {"id": file_id, "name": stored.name, "title": title, "size": len(stored.content)}
        message = self._own(text=upload.comment, files=[file], subtype="file_share")
        self._append(channel, message, upload.thread)
        stored.shown_in.add(channel)
        self.done.append(Done(channel, upload, file_id))
        self._end(fault)

    async def fetch(self, channel: str, file_id: str, take: Take) -> Download:
        fault = await self._begin("fetch")
        stored = self._files.get(file_id)
        if stored is None or channel not in stored.shown_in:
            raise ChatError(code="file_not_found")
        await take(stored.content)
        self._end(fault)
        return Download(file=File(id=file_id, name=stored.name, size_bytes=len(stored.content)))

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        fault = await self._begin("shared_in")
        stored = self._files.get(file_id)
        self._end(fault)
        return None if stored is None else frozenset(stored.shown_in)

    async def show_status(self, channel: str, thread: str, text: str) -> None:
        """What is shown now is in ``statuses``."""
        fault = await self._begin("show_status")
        self._find(channel, thread, "invalid_thread_ts")
        if text:
            self.statuses[channel, thread] = neutralise(text)
        else:
            self.statuses.pop((channel, thread), None)
        self._end(fault)

    async def start_stream(self, channel: str, thread: str, text: str) -> MessageRef:
        fault = await self._begin("start_stream")
        ts = self._append(channel, self._own(text=neutralise(text), blocks=[]), thread)
        self.streaming.add(ts)
        self._end(fault)
        return ts

    async def append_stream(self, channel: str, ts: str, text: str) -> None:
        fault = await self._begin("append_stream")
        message = self._streaming(channel, ts)
        message["text"] += neutralise(text)
        self._end(fault)

    async def stop_stream(self, channel: str, ts: str) -> None:
        fault = await self._begin("stop_stream")
        self._streaming(channel, ts)
        self.streaming.discard(ts)
        self._end(fault)

    async def replace(self, channel: str, ts: str, post: Post, op_id: str) -> None:
        """Refuses a message that still grows (streaming_state_conflict)."""
        fault = await self._begin("replace")
        message = self._find(channel, ts)
        if ts in self.streaming:
            raise ChatError(code="streaming_state_conflict")
        message.update(_shown(post), metadata=operation_metadata(op_id))
        self.done.append(Done(channel, post, ts))
        self._end(fault)

    async def delete(self, channel: str, ts: str) -> None:
        fault = await self._begin("delete")
        self._find(channel, ts)
        self.forget(ts)
        self._end(fault)

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        """What each person sees is in ``homes``."""
        fault = await self._begin("publish_home")
        self.homes[user] = blocks_of(parts)
        self._end(fault)

    async def open_form(self, trigger_id: str, form: ReasonForm) -> None:
        """A trigger is good once: those there are stand in ``triggers``."""
        fault = await self._begin("open_form")
        if trigger_id not in self.triggers:
            raise ChatError("the form came too late", "expired_trigger_id")
        self.forms[self.triggers.pop(trigger_id)] = form
        self._end(fault)

    async def history(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        fault = await self._begin("history")
        messages = self._channel(channel).messages
        if thread is None:
            # Slack tells of a first message when its thread was last written in.
            latest = {m["thread_ts"]: m["ts"] for m in messages if "thread_ts" in m}
            firsts = (m for m in reversed(messages) if m.get("thread_ts", m["ts"]) == m["ts"])
            chosen = [m | {"latest_reply": latest[m["ts"]]} if m["ts"] in latest else m for m in firsts]
        else:
            chosen = [m for m in messages if thread in (m["ts"], m.get("thread_ts"))]
            if not chosen:
                raise ChatError(code="thread_not_found")
        chosen = [m for m in chosen if float(m["ts"]) > since_s]
        start = int(cursor or 0)
        end = start + self.page_size
        self._end(fault)
        cursor = str(end) if end < len(chosen) else ""
        messages = [dict(m) for m in chosen[start:end]]
        return page_in({"messages": messages, "response_metadata": {"next_cursor": cursor}})

    async def own(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> OwnPage:
        """It is a call of ``history``."""
        page = await self.history(channel, thread=thread, since_s=since_s, cursor=cursor)
        return own_in(page, self.me.bot_id)

    async def _begin(self, method: str) -> _Fault | None:
        self.calls.append(method)
        self._news.set()
        if held := self._held.get(method):
            await held.wait()
        faults = self._faults.get(method)
        fault = faults.pop(0) if faults else None
        if fault is not None and not fault.after:
            raise fault.error
        return fault

    def _end(self, fault: _Fault | None) -> None:
        self._news.set()
        if fault is not None:
            raise fault.error

    def _streaming(self, channel: str, ts: str) -> dict[str, Any]:
        message = self._find(channel, ts)
        if ts not in self.streaming:
            raise ChatError(code="message_not_in_streaming_state")
        return message

    def _channel(self, channel: str) -> _Channel:
        return self._channels.setdefault(channel, _Channel())

    def _own(self, **content: Any) -> dict[str, Any]:
        return {"type": "message", "user": self.me.user_id, "bot_id": self.me.bot_id, **content}

    def _append(
        self, channel: str, message: dict[str, Any], thread_ts: str | None, ts: str | None = None
    ) -> MessageRef:
        self._counter += 1
        ref = MessageRef(ts or f"1767225600.{self._counter:06d}")
        if thread_ts is not None:
            self._find(channel, thread_ts, "thread_not_found")
            message = message | {"thread_ts": thread_ts}
        self._channel(channel).messages.append(message | {"ts": ref})
        return ref

    def _find(self, channel: str, ts: str, code: str = "message_not_found") -> dict[str, Any]:
        for message in self._channel(channel).messages:
            if message["ts"] == ts:
                return message
        raise ChatError(code=code)


def _shown(said: Post | Update) -> dict[str, Any]:
    """As history tells it."""
    text, blocks = rendered(said.message, said.mention if isinstance(said, Post) else "")
    return {"text": text, "blocks": blocks}
