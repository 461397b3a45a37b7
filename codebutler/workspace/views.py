"""Modals and home tabs as data: trigger IDs, each person's stack of modals and home tab. Pure. Source: Slack's pages on
modals, App Home and views.*: a trigger ID lives three seconds and works once; a stack holds three views; a hash that is
not the latest is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec
from msgspec import Struct, field

from codebutler.domain.clock import Clock
from codebutler.workspace import blocks as block_kit
from codebutler.workspace.blocks import state_values
from codebutler.workspace.state import Json, MethodError

TRIGGER_LIFE_S = 3.0
TRIGGER_MEMORY_S = 60.0
MAX_STACK = 3
MAX_VIEW_BYTES = 250_000
MAX_VIEW_BLOCKS = 100
MAX_TITLE_CHARS = 24
# Field -> maximum number of characters.
TEXT_LIMITS = {"callback_id": 255, "private_metadata": 3000, "external_id": 255}


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
    content: Json
    hash: str
    root_id: str
    previous_id: str | None = None
    values: Json = field(default_factory=dict)

    @property
    def blocks(self) -> list[Json]:
        """The blocks as Slack would store them, each with a block_id."""
        blocks: list[Json] = self.content["blocks"]
        return blocks

    def set_answers(self, answers: Json) -> None:
        """Store what the user has chosen and typed so far. Raises MethodError invalid_arguments."""
        self.values = state_values(self.blocks, answers)


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

    def open(self, trigger_id: str, raw: Json) -> View:
        """A new modal that replaces any open ones. Raises MethodError as views.open does."""
        content = self._checked(raw, "modal")
        trigger = self._redeem(trigger_id)
        view = self._new_view(trigger.user, content)
        self._stacks[trigger.user] = [view]
        return view

    def push(self, trigger_id: str, raw: Json) -> View:
        """A modal on top of the one that the trigger came from. Raises MethodError as views.push does."""
        content = self._checked(raw, "modal")
        trigger = self._redeem(trigger_id)
        return self._push(self.modal(trigger.user, trigger.view_id), content)

    def push_over(self, view: View, raw: Json) -> View:
        """The same, in response to a submission. Raises MethodError."""
        return self._push(view, self._checked(raw, "modal"))

    def update(self, view: View, raw: Json, expected_hash: str = "") -> View:
        """Replace the content of a view. Raises MethodError hash_conflict, invalid_arguments."""
        if expected_hash and expected_hash != view.hash:
            raise MethodError("hash_conflict")
        content = self._checked(raw, str(view.content["type"]), replaced=view)
        unchanged = {
            block_id: values
            for block_id, values in view.values.items()
            if _is_same_block(view, content, block_id)
        }
        view.content = content
        view.values = {**state_values(view.blocks, {}), **unchanged}
        view.hash = self._hash()
        return view

    def publish(self, user: str, raw: Json, expected_hash: str = "") -> View:
        """The person's home tab. Raises MethodError hash_conflict, invalid_arguments."""
        home = self._homes.get(user)
        if home is not None:
            return self.update(home, raw, expected_hash)
        if expected_hash:
            raise MethodError("hash_conflict")
        self._homes[user] = self._new_view(user, self._checked(raw, "home"))
        return self._homes[user]

    def find(self, view_id: str, external_id: str = "") -> View:
        """An open modal or a home tab. Raises MethodError not_found."""
        for view in self._all():
            if view.id == view_id or (external_id and view.content.get("external_id") == external_id):
                return view
        raise MethodError("not_found")

    def modal(self, user: str, view_id: str) -> View:
        """An open modal of this person. Raises MethodError not_found."""
        for view in self._stacks.get(user, ()):
            if view.id == view_id:
                return view
        raise MethodError("not_found")

    def find_for(self, user: str, view_id: str) -> View:
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
        closed = stack[at:]
        del stack[at:]
        return closed[::-1]

    def _push(self, below: View, content: Json) -> View:
        stack = self._stacks[below.user]
        if len(stack) >= MAX_STACK:
            raise MethodError("push_limit_reached")
        view = self._new_view(below.user, content)
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

    def _new_view(self, user: str, content: Json) -> View:
        view_id = self._new_id("V")
        view = View(id=view_id, user=user, content=content, hash=self._hash(), root_id=view_id)
        view.set_answers({})
        return view

    def _hash(self) -> str:
        return f"{int(self._clock.now().timestamp())}.{secrets.token_hex(4)}"

    def _all(self) -> list[View]:
        return [*(view for stack in self._stacks.values() for view in stack), *self._homes.values()]

    def _checked(self, raw: Json, kind: str, replaced: View | None = None) -> Json:
        """The content as Slack would store it."""
        if raw.get("type") != kind:
            raise _invalid(f"must be a valid enum value, expected {kind!r} [json-pointer:/view/type]")
        if len(msgspec.json.encode(raw)) > MAX_VIEW_BYTES:
            raise MethodError("view_too_large")
        blocks = raw.get("blocks")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _invalid("missing required field: blocks [json-pointer:/view]")
        for name, limit in TEXT_LIMITS.items():
            if len(str(raw.get(name) or "")) > limit:
                raise _invalid(f"must be less than {limit + 1} characters [json-pointer:/view/{name}]")
        external_id = raw.get("external_id")
        if external_id and any(
            v is not replaced and v.content.get("external_id") == external_id for v in self._all()
        ):
            raise MethodError("duplicate_external_id")
        if kind == "modal":
            _check_frame(raw, blocks)
        return {**raw, "blocks": _checked_blocks(blocks)}


def _checked_blocks(blocks: list[Json]) -> list[Json]:
    """Slack reports errors in a view's blocks as invalid arguments."""
    try:
        return block_kit.checked_blocks(blocks, MAX_VIEW_BLOCKS)
    except MethodError as error:
        details = tuple(line.replace("json-pointer:", "json-pointer:/view") for line in error.details)
        raise MethodError("invalid_arguments", details) from None


def _check_frame(content: Json, blocks: list[Json]) -> None:
    for name in ("title", "submit", "close"):
        text = content.get(name)
        words = str(text.get("text") or "") if isinstance(text, dict) else ""
        if not words and (name == "title" or text):
            raise _invalid(f"missing required field: {name} [json-pointer:/view]")
        if len(words) > MAX_TITLE_CHARS:
            raise _invalid(
                f"must be less than {MAX_TITLE_CHARS + 1} characters [json-pointer:/view/{name}/text]"
            )
    if not content.get("submit") and any(block.get("type") == "input" for block in blocks):
        raise _invalid("`submit` is required when blocks contain an input [json-pointer:/view/submit]")


def _is_same_block(view: View, content: Json, block_id: str) -> bool:
    """Whether a block of the new content is the one that the user has already answered."""
    old = next((block for block in view.blocks if block["block_id"] == block_id), None)
    new = next((block for block in content["blocks"] if block["block_id"] == block_id), None)
    return old is not None and new is not None and old.get("element") == new.get("element")


def _invalid(reason: str) -> MethodError:
    return MethodError("invalid_arguments", (f"[ERROR] {reason}",))
