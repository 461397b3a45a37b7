"""Clicks, choices, slash commands and dialogs: from a person to the app."""

from __future__ import annotations

import contextlib

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.blocks import FIELDS, answer_value, form_problems, state_values
from codebutler.workspace.call import WorkspaceContext
from codebutler.workspace.responses import Responses
from codebutler.workspace.state import Channel, Json, MethodError, User, Workspace
from codebutler.workspace.views import View


class Interactions:
    """Passes people's actions on messages and commands to the app. Raises MethodError operation_timeout if
    the app does not acknowledge within its three seconds."""

    def __init__(self, context: WorkspaceContext) -> None:
        self._context = context
        self._workspace = context.workspace
        self.responses = Responses(context)

    async def click(self, user: User, body: Json) -> Json:
        """Press a button of a message, or choose in it. If it is gone, the page's copy is sent."""
        channel = self._visible_channel(user, body)
        ts, action_id = str(body.get("message_ts") or ""), str(body.get("action_id") or "")
        if not action_id:
            raise MethodError("invalid_arguments")
        blocks, place = self._place(channel, user, ts)
        found = block_kit.find_action(blocks, action_id, str(body.get("block_id") or ""))
        action = action_of(found or _missing_button(body), body)
        payload = {
            **interaction_payload(self._workspace, "block_actions", user),
            **place,
            "trigger_id": self._context.views.trigger(user.id),
            "state": {"values": state_values(blocks, body.get("values") or {})},
            "response_url": self.responses.url(channel, user, ts, place["container"].get("thread_ts")),
            "actions": [{**action, "action_ts": self._workspace.next_ts()}],
        }
        await self._context.hub.ask("interactive", payload, accepts_response=False)
        return {}

    async def suggest(self, user: User, body: Json) -> Json:
        """The app's ``options`` in an external select for the text typed so far."""
        if view_id := str(body.get("view_id") or ""):
            view = self._context.views.find_for(user.id, view_id)
            shown = render.view(self._workspace, view)
            place: Json = {"container": {"type": "view", "view_id": view.id}, "view": shown}
        else:
            ts = str(body.get("message_ts") or "")
            _, place = self._place(self._visible_channel(user, body), user, ts)
        payload = {
            **interaction_payload(self._workspace, "block_suggestion", user),
            **place,
            "action_id": str(body.get("action_id") or ""),
            "block_id": str(body.get("block_id") or ""),
            "value": str(body.get("value") or ""),
        }
        answer = await self._context.hub.ask("interactive", payload, accepts_response=True)
        groups = answer.get("option_groups") or []
        found = list(answer.get("options") or [])
        return {"options": found + [option for group in groups for option in group.get("options") or []]}

    async def slash(self, user: User, body: Json) -> Json:
        """Send a slash command; the acknowledgement's payload is shown to the person (or in_channel) and
        returned."""
        channel = self._visible_channel(user, body)
        command = str(body.get("command") or "")
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
            "text": str(body.get("text") or ""),
            "api_app_id": self._workspace.app_id,
            "is_enterprise_install": "false",
            "response_url": self.responses.url(channel, user),
            "trigger_id": self._context.views.trigger(user.id),
        }
        answer = await self._context.hub.ask("slash_commands", payload, accepts_response=True)
        if answer:
            self.responses.post(channel, user.id, None, answer)
        return {"payload": answer}

    async def shortcut(self, user: User, body: Json) -> Json:
        """Use one of the app's shortcuts: anywhere or, with ``channel`` and ``message_ts``, on a message."""
        callback_id = str(body.get("callback_id") or "")
        if not callback_id:
            raise MethodError("invalid_arguments")
        ts = str(body.get("message_ts") or "")
        payload = {
            **interaction_payload(self._workspace, "message_action" if ts else "shortcut", user),
            "callback_id": callback_id,
            "trigger_id": self._context.views.trigger(user.id),
            "action_ts": self._workspace.next_ts(),
        }
        if ts:
            channel = self._visible_channel(user, body)
            message = channel.message(ts)
            payload.update(
                channel={"id": channel.id, "name": channel.name or "directmessage"},
                message=render.message(self._workspace, channel, message),
                message_ts=ts,
                response_url=self.responses.url(channel, user, ts, message.thread_ts),
            )
        await self._context.hub.ask("interactive", payload, accepts_response=False)
        return {}

    def _visible_channel(self, user: User, body: Json) -> Channel:
        channel = self._workspace.channel(str(body.get("channel") or ""))
        if channel.is_hidden and user.id not in channel.members:
            raise MethodError("channel_not_found")
        return channel

    def _place(self, channel: Channel, user: User, ts: str) -> tuple[list[Json], Json]:
        """A message's blocks, and its place in a payload; an ephemeral one is not included."""
        container: Json = {"type": "message", "message_ts": ts, "channel_id": channel.id}
        where: Json = {"channel": {"id": channel.id, "name": channel.name or "directmessage"}}
        if ephemeral := self._context.ephemerals.find(user.id, ts):
            container["is_ephemeral"] = True
            if ephemeral.thread_ts:
                container["thread_ts"] = ephemeral.thread_ts
            return ephemeral.blocks, {"container": container, **where}
        message = channel.message(ts)
        container["is_ephemeral"] = False
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        shown = render.message(self._workspace, channel, message)
        return message.blocks, {"container": container, **where, "message": shown}


def interaction_payload(workspace: Workspace, kind: str, user: User) -> Json:
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


def action_of(element: Json, body: Json) -> Json:
    """The element as an action describes it: without its options, with the choice or text."""
    kind = str(element.get("type"))
    if kind not in FIELDS:
        return element
    action = {name: value for name, value in element.items() if name not in ("options", "option_groups")}
    return {**action, FIELDS[kind]: answer_value(element, body.get("value"))}


def _missing_button(body: Json) -> Json:
    value = body.get("value")
    return {
        "type": "button",
        "action_id": str(body.get("action_id") or ""),
        "block_id": str(body.get("block_id") or ""),
        "value": value if isinstance(value, str) else "",
    }


class Dialogs:
    """Passes actions in views to the app, and the app's answers back into the views."""

    def __init__(self, context: WorkspaceContext) -> None:
        self._context = context
        self._workspace = context.workspace
        self._views = context.views

    def views_of(self, user: User) -> Json:
        """The person's open modals, the visible one last, and their home."""
        return render.views(self._workspace, self._views, user.id)

    def open_home(self, user: User, body: Json) -> Json:
        """The person opens the app's home tab; the app gets an event and may publish a newer one."""
        channel = self._workspace.open_im(user.id, self._workspace.bot.id)
        home = self._views.home(user.id)
        self._context.announcer.home_opened(channel, user.id, str(body.get("tab") or "home"), home)
        return {"channel": channel.id, **self.views_of(user)}

    async def act(self, user: User, body: Json) -> Json:
        """Press or choose something in a view. Raises MethodError not_found, operation_timeout."""
        view = self._view_with_answers(user, body)
        action_id, block_id = str(body.get("action_id") or ""), str(body.get("block_id") or "")
        element = block_kit.find_action(view.blocks, action_id, block_id)
        if element is None:
            raise MethodError("not_found")
        payload = {
            **interaction_payload(self._workspace, "block_actions", user),
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._views.trigger(user.id, view.id),
            "view": render.view(self._workspace, view),
            "actions": [{**action_of(element, body), "action_ts": self._workspace.next_ts()}],
        }
        await self._context.hub.ask("interactive", payload, accepts_response=False)
        return {}

    async def submit(self, user: User, body: Json) -> Json:
        """Submit a modal's form. ``errors`` by block if it cannot be submitted or the app refuses it.

        Raises MethodError not_found, operation_timeout (the form stays as it is), invalid_view_response.
        """
        view = self._view_with_answers(user, body)
        self._views.modal(user.id, view.id)
        if found := form_problems(view.blocks, view.values):
            return {"errors": found}
        payload = {
            **interaction_payload(self._workspace, "view_submission", user),
            "trigger_id": self._views.trigger(user.id, view.id),
            "view": render.view(self._workspace, view),
            "response_urls": [],
        }
        answer = await self._context.hub.ask("interactive", payload, accepts_response=True)
        errors = self._apply_response(view, answer)
        self._context.announcer.views_changed(user.id, self._views)
        return {"errors": errors} if errors else {}

    async def close(self, user: User, body: Json) -> Json:
        """Close a modal, or with ``clear`` the whole stack. An app that asked for it gets an event."""
        view = self._views.modal(user.id, str(body.get("view_id") or ""))
        everything = bool(body.get("clear")) or bool(view.content.get("clear_on_close"))
        closed_views = self._views.close(view, everything=everything)
        self._context.announcer.views_changed(user.id, self._views)
        for closed in closed_views:
            if closed.content.get("notify_on_close"):
                payload = {
                    **interaction_payload(self._workspace, "view_closed", user),
                    "view": render.view(self._workspace, closed),
                    "is_cleared": everything,
                }
                # A closed view stays closed, even if the app does not acknowledge in time.
                with contextlib.suppress(MethodError):
                    await self._context.hub.ask("interactive", payload, accepts_response=False)
        return {}

    def _view_with_answers(self, user: User, body: Json) -> View:
        view = self._views.find_for(user.id, str(body.get("view_id") or ""))
        view.set_answers(body.get("values") or {})
        return view

    def _apply_response(self, view: View, answer: Json) -> Json:
        """Apply the app's answer to a submission; returns its errors by block."""
        match answer.get("response_action"):
            case None:
                self._views.close(view)
            case "clear":
                self._views.close(view, everything=True)
            case "update":
                self._views.update(view, _response_view(answer))
            case "push":
                self._views.push_over(view, _response_view(answer))
            case "errors" if isinstance(answer.get("errors"), dict):
                errors: Json = answer["errors"]
                return errors
            case _:
                raise MethodError("invalid_view_response")
        return {}


def _response_view(answer: Json) -> Json:
    view = answer.get("view")
    if not isinstance(view, dict):
        raise MethodError("invalid_view_response")
    return view
