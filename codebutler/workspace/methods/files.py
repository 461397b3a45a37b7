"""files.*: the three steps of an upload, and files' records."""

from __future__ import annotations

import mimetypes
import secrets
from urllib.parse import quote

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.call import Call
from codebutler.workspace.methods.chat import publish
from codebutler.workspace.state import Channel, Json, Message, MethodError, StoredFile

MAX_FILE_BYTES = 100_000_000


def get_upload_url(call: Call) -> Json:
    """files.getUploadURLExternal: the first step, a one-time address for ``length`` bytes.

    Raises MethodError file_upload_size_restricted above 100 MB.
    """
    length = call.params.required("length")
    if not length.isdecimal():
        raise MethodError("invalid_arguments")
    if int(length) > MAX_FILE_BYTES:
        raise MethodError("file_upload_size_restricted")
    name = call.params.required("filename").replace("/", "_")
    file_id = call.workspace.next_id("F")
    stored = StoredFile(
        id=file_id,
        owner=call.actor.id,
        name=name,
        title=name,
        length_bytes=int(length),
        url=f"{call.workspace.files_url}/{file_id}/{quote(name)}",
        created_s=call.workspace.now_s(),
        mimetype=mimetypes.guess_type(name)[0] or "application/octet-stream",
    )
    call.workspace.files[file_id] = stored
    ticket = secrets.token_urlsafe(24)
    call.context.uploads[ticket] = stored
    return {"upload_url": f"{call.context.url}/upload/{ticket}", "file_id": file_id}


def complete_upload(call: Call) -> Json:
    """files.completeUploadExternal: the last step, which shares the files in one message for each channel.

    Raises MethodError no_files_provided, file_not_found, and as posting does.
    """
    files = [_finish_upload(call, argument) for argument in call.params.objects("files") or []]
    if not files:
        raise MethodError("no_files_provided")
    channels = _channels(call)
    for stored in files:
        stored.completed = True
        stored.shared_in.update(channel.id for channel in channels)
    rendered = [render.file(stored) for stored in files]
    for channel in channels:
        message = Message(
            ts=call.workspace.next_ts(),
            user=call.actor.id,
            text=call.params.text("initial_comment"),
            by_app=call.actor.is_bot,
            subtype="file_share",
            blocks=block_kit.checked_blocks(call.params.objects("blocks", "invalid_blocks") or []),
            files=rendered,
        )
        if call.params.has("thread_ts"):
            message.thread_ts = channel.thread_root(call.params.text("thread_ts"))
        publish(call, channel, message)
        for stored in files:
            call.context.announcer.file_shared(channel, call.actor, stored.id)
    return {"files": rendered}


def list_files(call: Call) -> Json:
    """The files that the caller may read, newest first; ``channel`` and ``user`` narrow it."""
    channel, owner = call.params.text("channel"), call.params.text("user")
    count, number = call.params.number("count", 100, 1000), call.params.number("page", 1, 1000)
    known = [
        stored
        for stored in reversed(call.workspace.files.values())
        if stored.completed
        and call.workspace.may_read(call.actor, stored)
        and channel in ("", *stored.shared_in)
        and owner in ("", stored.owner)
    ]
    paging = {"count": count, "total": len(known), "page": number, "pages": -(-len(known) // count)}
    shown = known[(number - 1) * count : number * count]
    return {"files": [render.file(stored) for stored in shown], "paging": paging}


def delete(call: Call) -> Json:
    """Raises MethodError file_not_found, cant_delete_file; its messages show that it is gone."""
    stored = call.workspace.files.get(call.params.required("file", "file_not_found"))
    if stored is None or not call.workspace.may_read(call.actor, stored):
        raise MethodError("file_not_found")
    if stored.owner != call.actor.id:
        raise MethodError("cant_delete_file")
    del call.workspace.files[stored.id]
    for channel_id in stored.shared_in:
        channel = call.workspace.channel(channel_id)
        for message in channel.messages.values():
            if any(file.get("id") == stored.id for file in message.files):
                previous = render.message(call.workspace, channel, message)
                tombstone = {"id": stored.id, "mode": "tombstone"}
                message.files = [tombstone if file.get("id") == stored.id else file for file in message.files]
                call.context.announcer.message_changed(channel, message, previous)
    call.context.announcer.file_deleted(stored.id)
    return {}


def info(call: Call) -> Json:
    """files.info; a file the caller may not read counts as missing. Raises MethodError file_not_found."""
    stored = call.workspace.files.get(call.params.required("file", "file_not_found"))
    if stored is None or not call.workspace.may_read(call.actor, stored):
        raise MethodError("file_not_found")
    rendered = {**render.file(stored), "channels": sorted(stored.shared_in), "groups": [], "ims": []}
    return {"file": rendered, "comments": [], "response_metadata": {"next_cursor": ""}}


def _finish_upload(call: Call, argument: Json) -> StoredFile:
    stored = call.workspace.files.get(str(argument.get("id")))
    if stored is None or stored.owner != call.actor.id or stored.content is None:
        raise MethodError("file_not_found")
    if stored.completed:
        raise MethodError("file_not_found")
    if argument.get("title"):
        stored.title = str(argument["title"])
    return stored


def _channels(call: Call) -> list[Channel]:
    if call.params.has("channel_id"):
        return [call.joined_channel("channel_id")]
    ids = [channel_id for channel_id in call.params.text("channels").split(",") if channel_id]
    return [_member_channel(call, channel_id) for channel_id in ids]


def _member_channel(call: Call, channel_id: str) -> Channel:
    channel = call.workspace.channel(channel_id)
    if call.actor.id not in channel.members:
        raise MethodError("not_in_channel")
    return channel
