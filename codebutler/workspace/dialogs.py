"""A person's actions in a modal or in the app's home: choose, send, close, look."""

from __future__ import annotations

import contextlib

from codebutler.workspace import blocks as block_kit
from codebutler.workspace import render
from codebutler.workspace.calls import House
from codebutler.workspace.elements import problems
from codebutler.workspace.interact import chosen, interaction
from codebutler.workspace.records import Json, MethodError, User
from codebutler.workspace.views import View


class Dialogs:
    """Passes actions in views to the app, and the app's answers back into the views."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace
        self._views = house.views

    def shown_to(self, user: User) -> Json:
        """The person's open modals, the visible one last, and their home."""
        home = self._views.home(user.id)
        return {
            "modals": [render.view(self._workspace, view) for view in self._views.stack(user.id)],
            "home": render.view(self._workspace, home) if home else None,
        }

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
        self._tell(user)
        return {"errors": errors} if errors else {}

    async def close(self, user: User, given: Json) -> Json:
        """Close a modal, or with ``clear`` the whole stack. An app that asked for it gets an event."""
        view = self._views.modal(user.id, str(given.get("view_id") or ""))
        everything = bool(given.get("clear")) or bool(view.given.get("clear_on_close"))
        gone = self._views.close(view, everything=everything)
        self._tell(user)
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

    def _tell(self, user: User) -> None:
        views = self._views
        self._house.announcer.views_changed(user.id, views.stack(user.id), views.home(user.id))


def _view_of(answer: Json) -> Json:
    view = answer.get("view")
    if not isinstance(view, dict):
        raise MethodError("invalid_view_response")
    return view
