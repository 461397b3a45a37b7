"""chat.startStream, .appendStream and .stopStream: a message that grows while it is written."""

from __future__ import annotations

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.methods.chat import publish
from codebutler.workspace.records import Channel, Json, Message, MethodError
from codebutler.workspace.responses import Call, Method

TASK_MARKS = {"pending": "☐", "in_progress": "⏳", "complete": "✅", "error": "❌"}


def start(call: Call) -> Json:
    """Raises MethodError missing_recipient_user_id, missing_recipient_team_id (in channels), invalid_thread_ts."""
    channel = call.joined_channel()
    if not channel.is_im:
        call.params.needed("recipient_user_id", "missing_recipient_user_id")
        call.params.needed("recipient_team_id", "missing_recipient_team_id")
    message = Message(
        ts=call.workspace.next_ts(),
        user=call.actor.id,
        text="",
        by_app=call.actor.is_bot,
        thread_ts=channel.thread_root(call.params.needed("thread_ts", "invalid_thread_ts")),
        stream={"text": "", "tasks": {}},
    )
    _grow(call, message)
    publish(call, channel, message)
    return {"channel": channel.id, "ts": message.ts}


def append(call: Call) -> Json:
    """chat.appendStream.

    Raises MethodError message_not_owned_by_app, message_not_in_streaming_state once it was stopped,
    invalid_chunks, msg_too_long.
    """
    channel, message = _streaming(call)
    previous = render.message(call.workspace, channel, message)
    _grow(call, message)
    call.house.announcer.changed(channel, message, previous)
    return {"channel": channel.id, "ts": message.ts}


def stop(call: Call) -> Json:
    """Content in this call is appended last; then it is an ordinary message."""
    channel, message = _streaming(call)
    previous = render.message(call.workspace, channel, message)
    _grow(call, message)
    message.blocks += block_kit.accepted(call.params.objects("blocks", "invalid_blocks_format") or [])
    message.metadata = call.params.object("metadata", "invalid_metadata_format") or message.metadata
    message.stream = None
    call.house.announcer.changed(channel, message, previous)
    told = render.message(call.workspace, channel, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "message": told}


def _streaming(call: Call) -> tuple[Channel, Message]:
    channel = call.channel()
    message = channel.message(call.params.needed("ts", "message_not_found"))
    if message.user != call.actor.id:
        raise MethodError("message_not_owned_by_app")
    if message.stream is None:
        raise MethodError("message_not_in_streaming_state")
    return channel, message


def _grow(call: Call, message: Message) -> None:
    """Apply this call's content; the text so far and the tasks above it are one markdown block."""
    written: Json = message.stream or {"text": "", "tasks": {}}
    written = {"text": written["text"] + call.params.text("markdown_text"), "tasks": dict(written["tasks"])}
    for chunk in call.params.objects("chunks", "invalid_chunks") or []:
        match chunk.get("type"):
            case "markdown_text":
                written["text"] += str(chunk.get("text") or "")
            case "task_update":
                mark = TASK_MARKS.get(str(chunk.get("status")), "")
                written["tasks"][str(chunk.get("id"))] = f"{mark} {chunk.get('title') or ''}".strip()
            case "plan_update":
                written["tasks"][""] = f"**{chunk.get('title') or ''}**"
            case "blocks":
                continue
            case _:
                raise MethodError("invalid_chunks")
    if len(written["text"]) > block_kit.MAX_MARKDOWN_CHARS:
        raise MethodError("msg_too_long")
    message.stream = written
    message.text = written["text"]
    shown = "\n\n".join([*written["tasks"].values(), written["text"]]).strip()
    message.blocks = block_kit.accepted([{"type": "markdown", "text": shown}]) if shown else []


METHODS: dict[str, Method] = {
    "chat.startStream": start,
    "chat.appendStream": append,
    "chat.stopStream": stop,
}
