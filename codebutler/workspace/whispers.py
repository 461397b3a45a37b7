"""Ephemeral messages: shown to one person only, and gone when the page that showed them is closed."""

from __future__ import annotations

from msgspec import Struct

from codebutler.platform.bounded import BoundedDict
from codebutler.workspace.records import Channel, Json, MethodError
from codebutler.workspace.state import Workspace
from codebutler.workspace.stream import Stream

# Enough for the buttons on them to work while somebody looks at them.
KEPT = 500


class Whisper(Struct, kw_only=True):
    """One ephemeral message of the app to ``user``."""

    ts: str
    channel: str
    user: str
    text: str
    blocks: list[Json]
    thread_ts: str | None = None


class Whispers:
    """Shows them, and finds them again while their buttons may be pressed."""

    def __init__(self, workspace: Workspace, stream: Stream) -> None:
        self._workspace = workspace
        self._stream = stream
        self._kept: BoundedDict[str, Whisper] = BoundedDict(KEPT)

    def say(
        self, channel: Channel, user: str, text: str, blocks: list[Json], thread_ts: str | None = None
    ) -> str:
        """Returns its ts."""
        whisper = Whisper(
            ts=self._workspace.next_ts(),
            channel=channel.id,
            user=user,
            text=text,
            blocks=blocks,
            thread_ts=thread_ts,
        )
        self._kept[whisper.ts] = whisper
        self._tell(whisper, {**self._shown(whisper), "channel": channel.id})
        return whisper.ts

    def find(self, user: str, ts: str) -> Whisper | None:
        """The person's own only."""
        whisper = self._kept.get(ts)
        return whisper if whisper is not None and whisper.user == user else None

    def replace(self, user: str, ts: str, text: str, blocks: list[Json]) -> None:
        """Other content in the same place. Raises MethodError message_not_found."""
        whisper = self._needed(user, ts)
        whisper.text, whisper.blocks = text, blocks
        self._tell(whisper, self._hidden(whisper, "message_changed", message=self._shown(whisper)))

    def delete(self, user: str, ts: str) -> None:
        """Raises MethodError message_not_found."""
        whisper = self._needed(user, ts)
        del self._kept[ts]
        self._tell(whisper, self._hidden(whisper, "message_deleted", deleted_ts=ts))

    def _needed(self, user: str, ts: str) -> Whisper:
        whisper = self.find(user, ts)
        if whisper is None:
            raise MethodError("message_not_found")
        return whisper

    def _shown(self, whisper: Whisper) -> Json:
        told: Json = {
            "type": "message",
            "user": self._workspace.bot.id,
            "bot_id": self._workspace.bot.bot_id,
            "text": whisper.text,
            "ts": whisper.ts,
            "is_ephemeral": True,
        }
        if whisper.blocks:
            told["blocks"] = whisper.blocks
        if whisper.thread_ts:
            told["thread_ts"] = whisper.thread_ts
        return told

    def _hidden(self, whisper: Whisper, subtype: str, **fields: object) -> Json:
        ts = self._workspace.next_ts()
        return {
            "type": "message",
            "subtype": subtype,
            "hidden": True,
            "channel": whisper.channel,
            "ts": ts,
            **fields,
        }

    def _tell(self, whisper: Whisper, event: Json) -> None:
        self._stream.publish(event, frozenset({whisper.user}))
