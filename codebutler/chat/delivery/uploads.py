"""Files on their way into a thread: each is shared once, whatever breaks in between.

Slack takes no metadata with a file, and another of the same name and size may stand in the thread: only the id tells
them apart. So the id is on disk before the file is shared. After an unknown outcome, or a death of ours, exactly that
file is asked for; what was brought to Slack and never shared is seen by nobody, and Slack discards it.
"""

from __future__ import annotations

import logging

from codebutler.chat.delivery.items import Item
from codebutler.chat.delivery.outgoing import said_again
from codebutler.chat.port import ChatPort
from codebutler.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.intake.notes import Notes
from codebutler.model import Upload
from codebutler.process.killpoints import reached

NOT_FOUND = "file_not_found"

log = logging.getLogger("codebutler.chat.delivery")


class Uploads:
    """Without ``notes`` a file's id is known for this life only."""

    def __init__(self, chat: ChatPort, notes: Notes | None) -> None:
        self._chat = chat
        self._notes = notes

    async def send(self, item: Item, upload: Upload) -> str:
        """One attempt; returns the file's id. Raises ChatError: ChatOutcomeUnknownError if it may be shared now."""
        try:
            if not item.file_id and self._notes is not None:
                # Noted in an earlier life, or before the channel was closed to us: then it may be shared.
                item.file_id = await self._notes.note(_name(item))
                item.unsure = item.unsure or bool(item.file_id)
            if item.is_repeat:
                upload = said_again(upload)
            if not item.file_id or not await self._share_again(item, upload):
                await self._begin(item, upload)
        except StoreError as error:
            raise ChatUnreachableError(f"an upload waits: {error}") from error
        return item.file_id

    async def _begin(self, item: Item, upload: Upload) -> None:
        file_id = await self._chat.upload(upload)
        reached("upload.stored")
        if self._notes is not None:
            await self._notes.keep_note(_name(item), file_id)
        reached("upload.noted")
        item.file_id = file_id
        await self._share(item, upload)

    async def _share_again(self, item: Item, upload: Upload) -> bool:
        """Share what an earlier attempt has brought to Slack, unless that did so; False if Slack has discarded it."""
        if item.unsure and item.channel in (await self._known(item.file_id) or ()):
            return True
        try:
            await self._share(item, upload)
        except ChatError as error:
            if error.code != NOT_FOUND:
                raise
            # A file can be shared once only: if it is still there it was, and Slack is slow to show where.
            return item.unsure and await self._known(item.file_id) is not None
        return True

    async def _share(self, item: Item, upload: Upload) -> None:
        await self._chat.share(item.channel, upload, item.file_id)
        reached("upload.shared")

    async def _known(self, file_id: str) -> frozenset[str] | None:
        """As in the port; where the chat cannot or will not tell, nothing is known of the file."""
        if (look_up := self._chat.capabilities.look_up) is None:
            return None
        try:
            return await look_up.shared_in(file_id)
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            log.warning("cannot look for an earlier upload: %s", error.code)
            return None


def _name(item: Item) -> str:
    return f"upload:{item.channel}:{item.op_id}"
