"""Clicks, choices, slash commands and dialogs: from a person to the app."""

from __future__ import annotations

import contextlib

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.blocks import FIELDS, answered, problems, state
from codebutler.workspace.responses import House, Responses
from codebutler.workspace.state import Channel, Json, MethodError, User, Workspace
from codebutler.workspace.views import View


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


class Dialogs:
    """Passes actions in views to the app, and the app's answers back into the views."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace
        self._views = house.views

    def shown_to(self, user: User) -> Json:
        """The person's open modals, the visible one last, and their home."""
        return render.views(self._workspace, self._views, user.id)

    def open_home(self, user: User, given: Json) -> Json:
        """The person opens the app's home tab; the app gets an event and may publish a newer one."""
        channel = self._workspace.open_im(user.id, self._workspace.bot.id)
        home = self._views.home(user.id)
        self._house.announcer.home_opened(channel, user.id, str(given.get("tab") or "home"), home)
        return {"channel": channel.id, **self.shown_to(user)}

    async def act(self, user: User, given: Json) -> Json:
        """Press or choose something in a view. Raises MethodError not_found, operation_timeout."""
        view = self._answered(user, given)
        action_id, block_id = str(given.get("action_id") or ""), str(given.get("block_id") or "")
        element = block_kit.find_action(view.blocks, action_id, block_id)
        if element is None:
            raise MethodError("not_found")
        payload = {
            **interaction(self._workspace, "block_actions", user),
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._views.trigger(user.id, view.id),
            "view": render.view(self._workspace, view),
            "actions": [{**chosen(element, given), "action_ts": self._workspace.next_ts()}],
        }
        await self._house.hub.ask("interactive", payload, accepts_response=False)
        return {}

    async def submit(self, user: User, given: Json) -> Json:
        """Submit a modal's form. ``errors`` by block if it cannot be submitted or the app refuses it.

        Raises MethodError not_found, operation_timeout (the form stays as it is), invalid_view_response.
        """
        view = self._answered(user, given)
        self._views.modal(user.id, view.id)
        if found := problems(view.blocks, view.values):
            return {"errors": found}
        payload = {
            **interaction(self._workspace, "view_submission", user),
            "trigger_id": self._views.trigger(user.id, view.id),
            "view": render.view(self._workspace, view),
            "response_urls": [],
        }
        answer = await self._house.hub.ask("interactive", payload, accepts_response=True)
        errors = self._follow(view, answer)
        self._house.announcer.views_changed(user.id, self._views)
        return {"errors": errors} if errors else {}

    async def close(self, user: User, given: Json) -> Json:
        """Close a modal, or with ``clear`` the whole stack. An app that asked for it gets an event."""
        view = self._views.modal(user.id, str(given.get("view_id") or ""))
        everything = bool(given.get("clear")) or bool(view.given.get("clear_on_close"))
        gone = self._views.close(view, everything=everything)
        self._house.announcer.views_changed(user.id, self._views)
        for closed in gone:
            if closed.given.get("notify_on_close"):
                payload = {
                    **interaction(self._workspace, "view_closed", user),
                    "view": render.view(self._workspace, closed),
                    "is_cleared": everything,
                }
                # A closed view stays closed, even if the app does not acknowledge in time.
                with contextlib.suppress(MethodError):
                    await self._house.hub.ask("interactive", payload, accepts_response=False)
        return {}

    def _answered(self, user: User, given: Json) -> View:
        view = self._views.seen_by(user.id, str(given.get("view_id") or ""))
        view.answer(given.get("values") or {})
        return view

    def _follow(self, view: View, answer: Json) -> Json:
        """Apply the app's answer to a submission; returns its errors by block."""
        match answer.get("response_action"):
            case None:
                self._views.close(view)
            case "clear":
                self._views.close(view, everything=True)
            case "update":
                self._views.update(view, _view_of(answer))
            case "push":
                self._views.push_over(view, _view_of(answer))
            case "errors" if isinstance(answer.get("errors"), dict):
                errors: Json = answer["errors"]
                return errors
            case _:
                raise MethodError("invalid_view_response")
        return {}


def _view_of(answer: Json) -> Json:
    view = answer.get("view")
    if not isinstance(view, dict):
        raise MethodError("invalid_view_response")
    return view
