"""chat.*: messages that are posted, edited, deleted or grow; and the assistant's status line."""

from __future__ import annotations

import re
import uuid

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.call import Call, Status
from codebutler.workspace.state import Channel, Json, Message, MethodError

MAX_TEXT_CHARS = 40_000
MAX_UPDATE_CHARS = 4_000
MAX_ATTACHMENTS = 100
# Slack: a status disappears after two minutes.
STATUS_LIFE_S = 120.0
TASK_MARKS = {"pending": "☐", "in_progress": "⏳", "complete": "✅", "error": "❌"}
# Code and enclosed text; an address without its sentence's full stop; a name.
TYPED_REFERENCES = re.compile(
    r"```.*?```|`[^`\n]*`|<[^<>\n]+>"
    r"|(?P<address>https?://(?:(?!&[lg]t;)[^\s<>`|])*(?:(?!&[lg]t;)[^\s<>`|.,;:!?'\")\]]))"
    r"|(?<![\w<@])@(?P<name>\w+)",
    re.DOTALL,
)


def post_message(call: Call) -> Json:
    """A client without an answer posts the same client_msg_id again: it is the same message."""
    if call.actor.is_bot or not call.params.has("client_msg_id"):
        return _post(call, "" if call.actor.is_bot else str(uuid.uuid4()))
    key = (call.actor.id, call.params.text("client_msg_id"))
    sent = call.context.sent
    if key not in sent:
        sent[key] = _post(call, key[1])
    return sent[key]


def _post(call: Call, client_msg_id: str) -> Json:
    channel = call.posting_channel()
    message = check_message(call, channel, client_msg_id)
    publish(call, channel, message)
    rendered = render.message(call.workspace, channel, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "message": rendered}


def check_message(call: Call, channel: Channel, client_msg_id: str = "") -> Message:
    """The message that a call's arguments make. Raises MethodError as chat.postMessage refuses them."""
    message = Message(
        ts=call.workspace.next_ts(),
        user=call.actor.id,
        text=_with_links(call, _text(call, MAX_TEXT_CHARS)),
        by_app=call.actor.is_bot,
        client_msg_id=client_msg_id,
        blocks=block_kit.checked_blocks(call.params.objects("blocks", "invalid_blocks_format") or []),
        attachments=_attachments(call) or [],
        metadata=_metadata(call),
    )
    if call.params.has("thread_ts"):
        message.thread_ts = channel.thread_root(call.params.text("thread_ts"))
        if call.params.flag("reply_broadcast"):
            message.subtype = "thread_broadcast"
    if call.actor.is_bot and call.params.has("username"):
        message.username = call.params.text("username")
        emoji = call.params.text("icon_emoji")
        message.icons = {"emoji": f":{emoji.strip(':')}:"} if emoji else {}
    return message


def me_message(call: Call) -> Json:
    """An action rather than a message."""
    channel = call.joined_channel()
    text = _with_links(call, _text(call, MAX_TEXT_CHARS))
    message = Message(
        ts=call.workspace.next_ts(),
        user=call.actor.id,
        text=text,
        by_app=call.actor.is_bot,
        subtype="me_message",
    )
    publish(call, channel, message)
    return {"channel": channel.id, "ts": message.ts}


def publish(call: Call, channel: Channel, message: Message) -> None:
    """Add a message and send its events; the bot's answer clears its status."""
    channel.add(message)
    call.context.announcer.message_posted(channel, message)
    if message.user == call.workspace.bot.id and message.thread_ts:
        _set_status(call, channel, message.thread_ts, "")


def update(call: Call) -> Json:
    """chat.update: replace the text of one's own message.

    Raises MethodError is_inactive (archived), cant_update_message, streaming_state_conflict while it still
    grows, and as posting does.
    """
    channel = call.channel()
    if channel.is_archived:
        raise MethodError("is_inactive")
    message = _own_message(call, channel, "cant_update_message")
    if message.stream is not None:
        raise MethodError("streaming_state_conflict")
    previous = render.message(call.workspace, channel, message)
    given_blocks = call.params.objects("blocks", "invalid_blocks_format")
    attachments = _attachments(call)
    metadata = _metadata(call)
    # Slack: text without blocks removes the old blocks; attachments and metadata stay unless given empty.
    text = _with_links(call, _text(call, MAX_UPDATE_CHARS))
    message.blocks = block_kit.checked_blocks(given_blocks or [])
    message.text = text
    message.attachments = message.attachments if attachments is None else attachments
    message.metadata = message.metadata if metadata is None else (metadata or None)
    if not given_blocks:
        message.edited = {"user": call.actor.id, "ts": call.workspace.next_ts()}
    call.context.announcer.message_changed(channel, message, previous)
    rendered = render.message(call.workspace, channel, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": rendered}


def delete(call: Call) -> Json:
    """chat.delete: one's own message. Raises MethodError message_not_found, cant_delete_message."""
    channel = call.channel()
    message = _own_message(call, channel, "cant_delete_message")
    previous = render.message(call.workspace, channel, message)
    channel.remove(message)
    call.context.announcer.message_deleted(channel, message.ts, previous)
    return {"channel": channel.id, "ts": message.ts}


def post_ephemeral(call: Call) -> Json:
    """chat.postEphemeral: visible to one member, not stored.

    Raises MethodError user_not_in_channel, and as posting does.
    """
    channel = call.joined_channel()
    user = call.workspace.user(call.params.required("user", "user_not_found"))
    if user.id not in channel.members:
        raise MethodError("user_not_in_channel")
    blocks = block_kit.checked_blocks(call.params.objects("blocks", "invalid_blocks_format") or [])
    thread_ts = channel.thread_root(call.params.text("thread_ts")) if call.params.has("thread_ts") else None
    ts = call.context.ephemerals.post(channel, user.id, _text(call, MAX_TEXT_CHARS), blocks, thread_ts)
    return {"message_ts": ts}


def get_permalink(call: Call) -> Json:
    """chat.getPermalink: an address in Slack's form, at which nothing answers here.

    Raises MethodError message_not_found.
    """
    channel = call.channel()
    message = channel.message(call.params.required("message_ts", "message_not_found"))
    link = f"{call.context.url}/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.is_reply:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}


def set_status(call: Call) -> Json:
    """assistant.threads.setStatus: the line "… is doing this", "" clears it.

    Raises MethodError not_allowed_token_type for all but the app's bot, invalid_thread_ts, thread_not_found.
    """
    channel = call.joined_channel("channel_id")
    if call.actor.id != call.workspace.bot.id:
        raise MethodError("not_allowed_token_type")
    thread_ts = channel.thread_root(call.params.required("thread_ts", "invalid_thread_ts"))
    _set_status(call, channel, thread_ts, call.params.text("status"))
    return {}


def set_thread(call: Call) -> Json:
    """A title or prompts for a thread: accepted, not shown."""
    channel = call.joined_channel("channel_id")
    channel.thread_root(call.params.required("thread_ts", "invalid_thread_ts"))
    return {}


def _set_status(call: Call, channel: Channel, thread_ts: str, status: str) -> None:
    statuses = call.context.statuses
    key = (channel.id, thread_ts)
    if not status and key not in statuses:
        return
    if status:
        statuses[key] = Status(status, call.workspace.clock.monotonic() + STATUS_LIFE_S)
    else:
        del statuses[key]
    call.context.announcer.status_changed(channel, thread_ts, status, STATUS_LIFE_S)


def _own_message(call: Call, channel: Channel, error_code: str) -> Message:
    message = channel.message(call.params.required("ts", "message_not_found"))
    if message.user != call.actor.id:
        raise MethodError(error_code)
    return message


def _text(call: Call, limit: int) -> str:
    """The text; it may be empty only with blocks or attachments."""
    params = call.params
    text = params.text("text")
    if params.has("markdown_text"):
        if text or params.has("blocks"):
            raise MethodError("markdown_text_conflict")
        text, limit = params.text("markdown_text"), block_kit.MAX_MARKDOWN_CHARS
    if len(text) > limit:
        raise MethodError("msg_too_long")
    if not text.strip() and not params.has("blocks") and not params.has("attachments"):
        raise MethodError("no_text")
    return text


def _with_links(call: Call, text: str) -> str:
    """A person's @name becomes a mention and an address is enclosed, as Slack's own apps do while one types."""
    if call.actor.id == call.workspace.bot.id or ("@" not in text and "://" not in text):
        return text
    ids = {user.name.lower(): user.id for user in call.workspace.users.values()}

    def enclose(found: re.Match[str]) -> str:
        if found["address"]:
            return f"<{found['address']}>"
        user_id = ids.get((found["name"] or "").lower())
        return f"<@{user_id}>" if user_id else found[0]

    return TYPED_REFERENCES.sub(enclose, text)


def _attachments(call: Call) -> list[Json] | None:
    attachments = call.params.objects("attachments", "invalid_attachments")
    if attachments and len(attachments) > MAX_ATTACHMENTS:
        raise MethodError("too_many_attachments")
    return attachments


def _metadata(call: Call) -> Json | None:
    metadata = call.params.object("metadata", "invalid_metadata_format")
    if not metadata:
        return metadata
    if not isinstance(metadata.get("event_type"), str) or not isinstance(metadata.get("event_payload"), dict):
        raise MethodError("invalid_metadata_schema")
    return metadata


def start_stream(call: Call) -> Json:
    """Raises MethodError missing_recipient_user_id, missing_recipient_team_id (in channels), invalid_thread_ts."""
    channel = call.joined_channel()
    if not channel.is_im:
        call.params.required("recipient_user_id", "missing_recipient_user_id")
        call.params.required("recipient_team_id", "missing_recipient_team_id")
    message = Message(
        ts=call.workspace.next_ts(),
        user=call.actor.id,
        text="",
        by_app=call.actor.is_bot,
        thread_ts=channel.thread_root(call.params.required("thread_ts", "invalid_thread_ts")),
        stream={"text": "", "tasks": {}},
    )
    _append_content(call, message)
    publish(call, channel, message)
    return {"channel": channel.id, "ts": message.ts}


def append_stream(call: Call) -> Json:
    """chat.appendStream.

    Raises MethodError message_not_owned_by_app, message_not_in_streaming_state once it was stopped,
    invalid_chunks, msg_too_long.
    """
    channel, message = _streaming(call)
    previous = render.message(call.workspace, channel, message)
    _append_content(call, message)
    call.context.announcer.message_changed(channel, message, previous)
    return {"channel": channel.id, "ts": message.ts}


def stop_stream(call: Call) -> Json:
    """Content in this call is appended last; then it is an ordinary message."""
    channel, message = _streaming(call)
    previous = render.message(call.workspace, channel, message)
    _append_content(call, message)
    message.blocks += block_kit.checked_blocks(call.params.objects("blocks", "invalid_blocks_format") or [])
    message.metadata = call.params.object("metadata", "invalid_metadata_format") or message.metadata
    message.stream = None
    call.context.announcer.message_changed(channel, message, previous)
    rendered = render.message(call.workspace, channel, message, metadata=True)
    return {"channel": channel.id, "ts": message.ts, "message": rendered}


def _streaming(call: Call) -> tuple[Channel, Message]:
    channel = call.channel()
    message = channel.message(call.params.required("ts", "message_not_found"))
    if message.user != call.actor.id:
        raise MethodError("message_not_owned_by_app")
    if message.stream is None:
        raise MethodError("message_not_in_streaming_state")
    return channel, message


def _append_content(call: Call, message: Message) -> None:
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
    message.blocks = block_kit.checked_blocks([{"type": "markdown", "text": shown}]) if shown else []
