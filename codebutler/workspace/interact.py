"""Clicks and slash commands: from a person to the app, and what the app says back to them."""

from __future__ import annotations

import secrets

from msgspec import Struct

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.calls import House
from codebutler.workspace.elements import FIELDS, answered, state
from codebutler.workspace.state import Channel, Json, Message, MethodError, User, Workspace

RESPONSE_USES = 5
RESPONSE_LIFE_S = 30 * 60.0


class ResponseTarget(Struct, kw_only=True):
    """Where a response_url speaks: to ``user`` in ``channel``, about ``message_ts`` after a click."""

    channel: str
    user: str
    message_ts: str = ""
    thread_ts: str | None = None
    uses_left: int = RESPONSE_USES
    until_s: float


class Interactions:
    """Holds the response_urls it gave out: five uses within half an hour each, as Slack's."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace
        self._targets: dict[str, ResponseTarget] = {}

    async def click(self, user: User, given: Json) -> Json:
        """Press a button of a message, or choose in it. What is gone meanwhile is sent as the page knew it."""
        channel = self._visible(user, given)
        message = channel.message(str(given.get("message_ts") or ""))
        action_id, block_id = str(given.get("action_id") or ""), str(given.get("block_id") or "")
        if not action_id:
            raise MethodError("invalid_arguments")
        found = block_kit.find_action(message.blocks, action_id, block_id)
        action = chosen(found or _forgotten(action_id, block_id, given), given)
        values = state(message.blocks, given.get("values") or {})
        payload = self._click_payload(user, channel, message, action, values)
        await self._house.hub.ask("interactive", payload, accepts_response=False)
        return {}

    async def slash(self, user: User, given: Json) -> Json:
        """Type a slash command; the ack's payload is shown to the person (or in_channel) and returned."""
        channel = self._visible(user, given)
        command = str(given.get("command") or "")
        if not command.startswith("/"):
            raise MethodError("invalid_arguments")
        payload = {
            "token": "verification-token",
            "team_id": self._workspace.team_id,
            "team_domain": "workspace",
            "channel_id": channel.id,
            "channel_name": channel.name or "directmessage",
            "user_id": user.id,
            "user_name": user.name,
            "command": command,
            "text": str(given.get("text") or ""),
            "api_app_id": self._workspace.app_id,
            "is_enterprise_install": "false",
            "response_url": self._response_url(channel, user),
            "trigger_id": self._house.views.trigger(user.id),
        }
        answer = await self._house.hub.ask("slash_commands", payload, accepts_response=True)
        if answer:
            self._say(channel, user.id, None, answer)
        return {"payload": answer}

    def respond(self, key: str, given: Json) -> None:
        """A post to a response_url. Raises MethodError expired_url, used_url."""
        target = self._targets.get(key)
        if target is None or self._workspace.clock.monotonic() > target.until_s:
            raise MethodError("expired_url")
        if target.uses_left == 0:
            raise MethodError("used_url")
        target.uses_left -= 1
        channel = self._workspace.channel(target.channel)
        if target.message_ts and (given.get("replace_original") or given.get("delete_original")):
            self._replace(channel, channel.message(target.message_ts), given)
            return
        self._say(channel, target.user, target.thread_ts, given)

    def _visible(self, user: User, given: Json) -> Channel:
        channel = self._workspace.channel(str(given.get("channel") or ""))
        if channel.is_im and user.id not in channel.members:
            raise MethodError("channel_not_found")
        return channel

    def _click_payload(
        self, user: User, channel: Channel, message: Message, action: Json, values: Json
    ) -> Json:
        container: Json = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": channel.id,
            "is_ephemeral": False,
        }
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        return {
            **interaction(self._workspace, "block_actions", user),
            "container": container,
            "trigger_id": self._house.views.trigger(user.id),
            "channel": {"id": channel.id, "name": channel.name or "directmessage"},
            "message": render.message(self._workspace, channel, message),
            "state": {"values": values},
            "response_url": self._response_url(channel, user, message),
            "actions": [{**action, "action_ts": self._workspace.next_ts()}],
        }

    def _response_url(self, channel: Channel, user: User, message: Message | None = None) -> str:
        now_s = self._workspace.clock.monotonic()
        self._forget_expired(now_s)
        key = secrets.token_urlsafe(24)
        self._targets[key] = ResponseTarget(
            channel=channel.id,
            user=user.id,
            message_ts=message.ts if message else "",
            thread_ts=message.thread_ts if message else None,
            until_s=now_s + RESPONSE_LIFE_S,
        )
        return f"{self._house.url}/response/{key}"

    def _forget_expired(self, now_s: float) -> None:
        """The oldest come first: all live equally long."""
        while self._targets:
            oldest = next(iter(self._targets))
            if now_s <= self._targets[oldest].until_s:
                return
            del self._targets[oldest]

    def _replace(self, channel: Channel, message: Message, given: Json) -> None:
        previous = render.message(self._workspace, channel, message)
        if given.get("delete_original"):
            channel.remove(message)
            self._house.announcer.deleted(channel, message.ts, previous)
            return
        message.text, message.blocks = _content(given)
        self._house.announcer.changed(channel, message, previous)

    def _say(self, channel: Channel, user: str, thread_ts: str | None, given: Json) -> None:
        text, blocks = _content(given)
        if given.get("response_type") != "in_channel":
            self._house.announcer.whispered(channel, user, text, blocks)
            return
        bot = self._workspace.bot
        message = Message(
            ts=self._workspace.next_ts(),
            user=bot.id,
            text=text,
            by_app=True,
            blocks=blocks,
            thread_ts=thread_ts,
        )
        channel.add(message)
        self._house.announcer.posted(channel, message)


def interaction(workspace: Workspace, kind: str, user: User) -> Json:
    """What every interaction payload begins with."""
    return {
        "type": kind,
        "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": workspace.team_id},
        "api_app_id": workspace.app_id,
        "token": "verification-token",
        "team": {"id": workspace.team_id, "domain": "workspace"},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def chosen(element: Json, given: Json) -> Json:
    """The element as an action tells it: without its options, with what was chosen or typed."""
    kind = str(element.get("type"))
    if kind not in FIELDS:
        return element
    told = {name: value for name, value in element.items() if name not in ("options", "option_groups")}
    return {**told, FIELDS[kind]: answered(element, given.get("value"))}


def _forgotten(action_id: str, block_id: str, given: Json) -> Json:
    value = given.get("value")
    return {
        "type": "button",
        "action_id": action_id,
        "block_id": block_id,
        "value": value if isinstance(value, str) else "",
    }


def _content(given: Json) -> tuple[str, list[Json]]:
    text, blocks = str(given.get("text") or ""), given.get("blocks") or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise MethodError("invalid_blocks")
    if not text and not blocks:
        raise MethodError("no_text")
    return text, block_kit.accepted(blocks)
