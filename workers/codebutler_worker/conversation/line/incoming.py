"""Words for an agent, and the rows they are kept in."""

from __future__ import annotations

from dataclasses import dataclass

from codebutler.model import File
from codebutler_worker.desk.draft import Draft
from codebutler_worker.media.kinds import is_voice
from codebutler_worker.store.rows import AttachmentRow, MessageRow, message_id

MAX_FILES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Words for an agent. ``ts`` is "" where Slack shows no message (a slash command). ``order`` as in the event; ""
    where a message of ours stands for them, whose ts is its order."""

    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    prefix: str | None = None
    late: bool = False
    handled: bool = False
    conversation: str | None = None
    order: str = ""
    files: tuple[File, ...] = ()
    job: str = ""

    @property
    def root_ts(self) -> str:
        """The thread it belongs to; its own ts where it begins one."""
        return self.thread_ts or self.ts


def key_of(message: MessageRow) -> str:
    """What names the message within its channel: its ts, or a slash command's conversation."""
    return message.id.partition(":")[2]


def keep_message(draft: Draft, said: Incoming, turn_id: str | None) -> None:
    """Write the message and its files, or what has become of it, as part of a turn (None = of none)."""
    files = _files(said)
    for file in files:
        draft.uow.attachments.add(file)
    row = MessageRow(
        id=message_id(said.channel, said.ts or said.conversation or ""),
        from_id=said.user,
        channel_id=said.channel,
        content=said.text,
        timestamp=draft.stamp,
        platform_msg_id=said.ts,
        order=said.order or said.ts,
        thread_ts=said.root_ts,
        turn_id=turn_id,
        agent=said.prefix,
        late=said.late,
        is_voice=any(file.is_voice for file in files),
    )
    if draft.uow.messages.get(said.channel, key_of(row)) is None:
        draft.uow.messages.add(row)
        return
    draft.uow.messages.set_text(said.channel, said.ts, said.text)
    if turn_id is not None:
        draft.uow.messages.attach(said.channel, said.ts, turn_id)


def _files(said: Incoming) -> list[AttachmentRow]:
    return [
        AttachmentRow(
            message_id=message_id(said.channel, said.ts),
            file_id=file.id,
            position=position,
            name=file.name,
            mimetype=file.mimetype,
            size_bytes=file.size_bytes,
            is_voice=is_voice(file.mimetype, file.subtype, file.name),
        )
        for position, file in enumerate(said.files[:MAX_FILES])
    ]
