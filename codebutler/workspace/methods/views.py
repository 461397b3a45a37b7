"""views.*: an app's modals and its home tab."""

from __future__ import annotations

from codebutler.workspace import render
from codebutler.workspace.records import Json, MethodError
from codebutler.workspace.responses import Call, Method
from codebutler.workspace.views import View


def publish(call: Call) -> Json:
    """views.publish: a person's home tab.

    Raises MethodError user_not_found, hash_conflict, and the errors of an invalid view.
    """
    user = call.workspace.user(call.params.needed("user_id", "user_not_found"))
    given = _given(call)
    return _told(call, call.house.views.publish(user.id, given, call.params.text("hash")))


def open_view(call: Call) -> Json:
    """views.open: a modal, for somebody who has just acted.

    Raises MethodError invalid_trigger_id, exchanged_trigger_id, expired_trigger_id, and the errors of an
    invalid view.
    """
    given = _given(call)
    return _told(call, call.house.views.open(_trigger(call), given))


def push(call: Call) -> Json:
    """views.push: a modal on top of the trigger's.

    Raises MethodError push_limit_reached, and as views.open does.
    """
    given = _given(call)
    return _told(call, call.house.views.push(_trigger(call), given))


def update(call: Call) -> Json:
    """views.update: replace an open view's content, by ``view_id`` or ``external_id``.

    Raises MethodError not_found, hash_conflict, and the errors of an invalid view.
    """
    given = _given(call)
    views = call.house.views
    view = views.find(call.params.text("view_id"), call.params.text("external_id"))
    return _told(call, views.update(view, given, call.params.text("hash")))


def _given(call: Call) -> Json:
    """The view; only the app itself has views. Raises MethodError not_allowed_token_type, invalid_arguments."""
    if call.actor.id != call.workspace.bot.id:
        raise MethodError("not_allowed_token_type")
    view = call.params.object("view")
    if view is None:
        raise MethodError("invalid_arguments", ("[ERROR] missing required field: view",))
    return view


def _trigger(call: Call) -> str:
    return call.params.needed("trigger_id", "invalid_trigger_id")


def _told(call: Call, view: View) -> Json:
    views = call.house.views
    call.house.announcer.views_changed(view.user, views.stack(view.user), views.home(view.user))
    return {"view": render.view(call.workspace, view)}


METHODS: dict[str, Method] = {
    "views.publish": publish,
    "views.open": open_view,
    "views.push": push,
    "views.update": update,
}
