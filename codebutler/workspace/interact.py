"""Clicks, choices and slash commands: from a person to the app."""

from __future__ import annotations

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.calls import House
from codebutler.workspace.elements import FIELDS, answered, state
from codebutler.workspace.records import Channel, Json, MethodError, User
from codebutler.workspace.responses import Responses
from codebutler.workspace.state import Workspace


class Interactions:
    """Passes people's actions on messages and commands to the app. Raises MethodError operation_timeout if
    the app does not acknowledge within its three seconds."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace
        self.responses = Responses(house)

    async def click(self, user: User, given: Json) -> Json:
        """Press a button of a message, or choose in it. If it is gone, the page's copy is sent."""
        channel = self._visible(user, given)
        ts, action_id = str(given.get("message_ts") or ""), str(given.get("action_id") or "")
        if not action_id:
            raise MethodError("invalid_arguments")
        blocks, place = self._place(channel, user, ts)
        found = block_kit.find_action(blocks, action_id, str(given.get("block_id") or ""))
        action = chosen(found or _forgotten(given), given)
        payload = {
            **interaction(self._workspace, "block_actions", user),
            **place,
            "trigger_id": self._house.views.trigger(user.id),
            "state": {"values": state(blocks, given.get("values") or {})},
            "response_url": self.responses.url(channel, user, ts, place["container"].get("thread_ts")),
            "actions": [{**action, "action_ts": self._workspace.next_ts()}],
        }
        await self._house.hub.ask("interactive", payload, accepts_response=False)
        return {}

    async def suggest(self, user: User, given: Json) -> Json:
        """The app's ``options`` in an external select for the text typed so far."""
        if view_id := str(given.get("view_id") or ""):
            view = self._house.views.seen_by(user.id, view_id)
            shown = render.view(self._workspace, view)
            place: Json = {"container": {"type": "view", "view_id": view.id}, "view": shown}
        else:
            ts = str(given.get("message_ts") or "")
            _, place = self._place(self._visible(user, given), user, ts)
        payload = {
            **interaction(self._workspace, "block_suggestion", user),
            **place,
            "action_id": str(given.get("action_id") or ""),
            "block_id": str(given.get("block_id") or ""),
            "value": str(given.get("value") or ""),
        }
        answer = await self._house.hub.ask("interactive", payload, accepts_response=True)
        groups = answer.get("option_groups") or []
        found = list(answer.get("options") or [])
        return {"options": found + [option for group in groups for option in group.get("options") or []]}

    async def slash(self, user: User, given: Json) -> Json:
        """Send a slash command; the acknowledgement's payload is shown to the person (or in_channel) and
        returned."""
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
            "response_url": self.responses.url(channel, user),
            "trigger_id": self._house.views.trigger(user.id),
        }
        answer = await self._house.hub.ask("slash_commands", payload, accepts_response=True)
        if answer:
            self.responses.say(channel, user.id, None, answer)
        return {"payload": answer}

    async def shortcut(self, user: User, given: Json) -> Json:
        """Use one of the app's shortcuts: anywhere or, with ``channel`` and ``message_ts``, on a message."""
        callback_id = str(given.get("callback_id") or "")
        if not callback_id:
            raise MethodError("invalid_arguments")
        ts = str(given.get("message_ts") or "")
        payload = {
            **interaction(self._workspace, "message_action" if ts else "shortcut", user),
            "callback_id": callback_id,
            "trigger_id": self._house.views.trigger(user.id),
            "action_ts": self._workspace.next_ts(),
        }
        if ts:
            channel = self._visible(user, given)
            message = channel.message(ts)
            payload.update(
                channel={"id": channel.id, "name": channel.name or "directmessage"},
                message=render.message(self._workspace, channel, message),
                message_ts=ts,
                response_url=self.responses.url(channel, user, ts, message.thread_ts),
            )
        await self._house.hub.ask("interactive", payload, accepts_response=False)
        return {}

    def _visible(self, user: User, given: Json) -> Channel:
        channel = self._workspace.channel(str(given.get("channel") or ""))
        if channel.is_hidden and user.id not in channel.members:
            raise MethodError("channel_not_found")
        return channel

    def _place(self, channel: Channel, user: User, ts: str) -> tuple[list[Json], Json]:
        """A message's blocks, and its place in a payload; an ephemeral one is not included."""
        container: Json = {"type": "message", "message_ts": ts, "channel_id": channel.id}
        where: Json = {"channel": {"id": channel.id, "name": channel.name or "directmessage"}}
        if whisper := self._house.whispers.find(user.id, ts):
            container["is_ephemeral"] = True
            if whisper.thread_ts:
                container["thread_ts"] = whisper.thread_ts
            return whisper.blocks, {"container": container, **where}
        message = channel.message(ts)
        container["is_ephemeral"] = False
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        shown = render.message(self._workspace, channel, message)
        return message.blocks, {"container": container, **where, "message": shown}


def interaction(workspace: Workspace, kind: str, user: User) -> Json:
    """The start of every interaction payload."""
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
    """The element as an action describes it: without its options, with the choice or text."""
    kind = str(element.get("type"))
    if kind not in FIELDS:
        return element
    told = {name: value for name, value in element.items() if name not in ("options", "option_groups")}
    return {**told, FIELDS[kind]: answered(element, given.get("value"))}


def _forgotten(given: Json) -> Json:
    value = given.get("value")
    return {
        "type": "button",
        "action_id": str(given.get("action_id") or ""),
        "block_id": str(given.get("block_id") or ""),
        "value": value if isinstance(value, str) else "",
    }
