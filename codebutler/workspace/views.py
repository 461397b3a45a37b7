"""Modals and home tabs as data: trigger IDs, each person's stack of modals and home tab. Pure. Source: Slack's pages
on modals, App Home and views.*: a trigger ID lives three seconds and works once; a stack holds three views; a hash
that is not the latest is refused.

Ephemeral messages: shown to one person only, and gone when the page that showed them is closed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec
from msgspec import Struct, field

from codebutler.domain.clock import Clock
from codebutler.platform.tasks import BoundedDict
from codebutler.workspace import blocks as block_kit
from codebutler.workspace.blocks import state
from codebutler.workspace.connections import Stream
from codebutler.workspace.state import Channel, Json, MethodError, Workspace

TRIGGER_LIFE_S = 3.0
TRIGGER_MEMORY_S = 60.0
MAX_STACK = 3
MAX_VIEW_BYTES = 250_000
MAX_VIEW_BLOCKS = 100
MAX_TITLE_CHARS = 24
# Field -> maximum number of characters.
TEXTS = {"callback_id": 255, "private_metadata": 3000, "external_id": 255}


class Trigger(Struct, kw_only=True):
    """The right to open one modal. ``view_id`` is set if it came from a modal."""

    user: str
    view_id: str
    issued_s: float
    used: bool = False


class View(Struct, kw_only=True):
    """One person's modal or home tab. ``values`` is Slack's state of its elements."""

    id: str
    user: str
    given: Json
    hash: str
    root_id: str
    previous_id: str | None = None
    values: Json = field(default_factory=dict)

    @property
    def blocks(self) -> list[Json]:
        """The blocks as Slack would store them, each with a block_id."""
        blocks: list[Json] = self.given["blocks"]
        return blocks

    def answer(self, answers: Json) -> None:
        """Store what the user has chosen and typed so far. Raises MethodError invalid_arguments."""
        self.values = state(self.blocks, answers)


class Views:
    """Every open modal and published home tab. ``new_id`` makes an ID from a prefix."""

    def __init__(self, clock: Clock, new_id: Callable[[str], str]) -> None:
        self._clock = clock
        self._new_id = new_id
        self._triggers: dict[str, Trigger] = {}
        self._stacks: dict[str, list[View]] = {}
        self._homes: dict[str, View] = {}

    def trigger(self, user: str, view_id: str = "") -> str:
        """A trigger ID for what ``user`` has just done."""
        now_s = self._clock.monotonic()
        while self._triggers:
            oldest = next(iter(self._triggers))
            if now_s - self._triggers[oldest].issued_s <= TRIGGER_MEMORY_S:
                break
            del self._triggers[oldest]
        trigger_id = f"{self._new_id('')}.{int(now_s * 1000)}.{secrets.token_hex(8)}"
        self._triggers[trigger_id] = Trigger(user=user, view_id=view_id, issued_s=now_s)
        return trigger_id

    def open(self, trigger_id: str, given: Json) -> View:
        """A new modal that replaces any open ones. Raises MethodError as views.open does."""
        content = self._accepted(given, "modal")
        trigger = self._redeem(trigger_id)
        view = self._made(trigger.user, content)
        self._stacks[trigger.user] = [view]
        return view

    def push(self, trigger_id: str, given: Json) -> View:
        """A modal on top of the one that the trigger came from. Raises MethodError as views.push does."""
        content = self._accepted(given, "modal")
        trigger = self._redeem(trigger_id)
        return self._over(self.modal(trigger.user, trigger.view_id), content)

    def push_over(self, view: View, given: Json) -> View:
        """The same, in response to a submission. Raises MethodError."""
        return self._over(view, self._accepted(given, "modal"))

    def update(self, view: View, given: Json, given_hash: str = "") -> View:
        """Replace the content of a view. Raises MethodError hash_conflict, invalid_arguments."""
        if given_hash and given_hash != view.hash:
            raise MethodError("hash_conflict")
        content = self._accepted(given, str(view.given["type"]), but=view)
        kept = {
            block_id: values for block_id, values in view.values.items() if _same(view, content, block_id)
        }
        view.given = content
        view.values = {**state(view.blocks, {}), **kept}
        view.hash = self._hash()
        return view

    def publish(self, user: str, given: Json, given_hash: str = "") -> View:
        """The person's home tab. Raises MethodError hash_conflict, invalid_arguments."""
        home = self._homes.get(user)
        if home is not None:
            return self.update(home, given, given_hash)
        if given_hash:
            raise MethodError("hash_conflict")
        self._homes[user] = self._made(user, self._accepted(given, "home"))
        return self._homes[user]

    def find(self, view_id: str, external_id: str = "") -> View:
        """An open modal or a home tab. Raises MethodError not_found."""
        for view in self._all():
            if view.id == view_id or (external_id and view.given.get("external_id") == external_id):
                return view
        raise MethodError("not_found")

    def modal(self, user: str, view_id: str) -> View:
        """An open modal of this person. Raises MethodError not_found."""
        for view in self._stacks.get(user, ()):
            if view.id == view_id:
                return view
        raise MethodError("not_found")

    def seen_by(self, user: str, view_id: str) -> View:
        """A modal or the home tab of this person. Raises MethodError not_found."""
        view = self.find(view_id)
        if view.user != user:
            raise MethodError("not_found")
        return view

    def stack(self, user: str) -> list[View]:
        """The person's modals, top one last."""
        return list(self._stacks.get(user, ()))

    def home(self, user: str) -> View | None:
        """The home tab that the app has published for somebody; None if it has not."""
        return self._homes.get(user)

    def close(self, view: View, *, everything: bool = False) -> list[View]:
        """Close a modal and those on top of it, or the whole stack; returns the closed ones, top one first."""
        stack = self._stacks.get(view.user, [])
        if view not in stack:
            return []
        at = 0 if everything else stack.index(view)
        gone = stack[at:]
        del stack[at:]
        return gone[::-1]

    def _over(self, below: View, content: Json) -> View:
        stack = self._stacks[below.user]
        if len(stack) >= MAX_STACK:
            raise MethodError("push_limit_reached")
        view = self._made(below.user, content)
        view.root_id, view.previous_id = stack[0].id, below.id
        stack.append(view)
        return view

    def _redeem(self, trigger_id: str) -> Trigger:
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise MethodError("invalid_trigger_id")
        if trigger.used:
            raise MethodError("exchanged_trigger_id")
        if self._clock.monotonic() - trigger.issued_s > TRIGGER_LIFE_S:
            raise MethodError("expired_trigger_id")
        trigger.used = True
        return trigger

    def _made(self, user: str, content: Json) -> View:
        view_id = self._new_id("V")
        view = View(id=view_id, user=user, given=content, hash=self._hash(), root_id=view_id)
        view.answer({})
        return view

    def _hash(self) -> str:
        return f"{int(self._clock.now().timestamp())}.{secrets.token_hex(4)}"

    def _all(self) -> list[View]:
        return [*(view for stack in self._stacks.values() for view in stack), *self._homes.values()]

    def _accepted(self, given: Json, kind: str, but: View | None = None) -> Json:
        """The content as Slack would store it."""
        if given.get("type") != kind:
            raise _wrong(f"must be a valid enum value, expected {kind!r} [json-pointer:/view/type]")
        if len(msgspec.json.encode(given)) > MAX_VIEW_BYTES:
            raise MethodError("view_too_large")
        blocks = given.get("blocks")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _wrong("missing required field: blocks [json-pointer:/view]")
        for name, most in TEXTS.items():
            if len(str(given.get(name) or "")) > most:
                raise _wrong(f"must be less than {most + 1} characters [json-pointer:/view/{name}]")
        external_id = given.get("external_id")
        if external_id and any(
            v is not but and v.given.get("external_id") == external_id for v in self._all()
        ):
            raise MethodError("duplicate_external_id")
        if kind == "modal":
            _check_frame(given, blocks)
        return {**given, "blocks": _kept(blocks)}


def _kept(blocks: list[Json]) -> list[Json]:
    """Slack reports errors in a view's blocks as invalid arguments."""
    try:
        return block_kit.accepted(blocks, MAX_VIEW_BLOCKS)
    except MethodError as refused:
        details = tuple(line.replace("json-pointer:", "json-pointer:/view") for line in refused.details)
        raise MethodError("invalid_arguments", details) from None


def _check_frame(given: Json, blocks: list[Json]) -> None:
    for name in ("title", "submit", "close"):
        text = given.get(name)
        words = str(text.get("text") or "") if isinstance(text, dict) else ""
        if not words and (name == "title" or text):
            raise _wrong(f"missing required field: {name} [json-pointer:/view]")
        if len(words) > MAX_TITLE_CHARS:
            raise _wrong(
                f"must be less than {MAX_TITLE_CHARS + 1} characters [json-pointer:/view/{name}/text]"
            )
    if not given.get("submit") and any(block.get("type") == "input" for block in blocks):
        raise _wrong("`submit` is required when blocks contain an input [json-pointer:/view/submit]")


def _same(view: View, content: Json, block_id: str) -> bool:
    """Whether a block of the new content is the one that the user has already answered."""
    old = next((block for block in view.blocks if block["block_id"] == block_id), None)
    new = next((block for block in content["blocks"] if block["block_id"] == block_id), None)
    return old is not None and new is not None and old.get("element") == new.get("element")


def _wrong(reason: str) -> MethodError:
    return MethodError("invalid_arguments", (f"[ERROR] {reason}",))


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

    def replace(self, whisper: Whisper, text: str, blocks: list[Json]) -> None:
        """Other content in the same place."""
        whisper.text, whisper.blocks = text, blocks
        self._tell(whisper, self._hidden(whisper, "message_changed", message=self._shown(whisper)))

    def delete(self, whisper: Whisper) -> None:
        """Nobody sees it any more, and its buttons cannot be pressed."""
        del self._kept[whisper.ts]
        self._tell(whisper, self._hidden(whisper, "message_deleted", deleted_ts=whisper.ts))

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
