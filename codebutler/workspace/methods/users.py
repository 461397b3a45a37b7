"""users.*, auth.*, views.* and other methods about people, the app and the team."""

from __future__ import annotations

from codebutler.workspace import render
from codebutler.workspace.call import Call, page
from codebutler.workspace.state import Json, MethodError, User
from codebutler.workspace.views import View


def info(call: Call) -> Json:
    """Raises MethodError user_not_found."""
    return {"user": render.user(call.workspace, _requested_user(call))}


def list_users(call: Call) -> Json:
    """users.list: everybody, bots too, a page at a time."""
    users, cursor = page(list(call.workspace.users.values()), call.params)
    return {
        "members": [render.user(call.workspace, user) for user in users],
        "cache_ts": call.workspace.now_s(),
        "response_metadata": {"next_cursor": cursor},
    }


def lookup(call: Call) -> Json:
    """By the address in users.info. Raises MethodError users_not_found."""
    address = call.params.required("email", "users_not_found").lower()
    for user in call.workspace.users.values():
        if not user.is_bot and render.email(user) == address:
            return {"user": render.user(call.workspace, user)}
    raise MethodError("users_not_found")


def profile(call: Call) -> Json:
    """The caller's own unless ``user`` is given."""
    user = _requested_user(call) if call.params.has("user") else call.actor
    return {"profile": render.user(call.workspace, user)["profile"]}


def presence(call: Call) -> Json:
    """users.getPresence: everybody is always active."""
    if call.params.has("user"):
        _requested_user(call)
    return {"presence": "active", "online": True, "auto_away": False, "manual_away": False}


def groups(_: Call) -> Json:
    """Always empty."""
    return {"usergroups": []}


def _requested_user(call: Call) -> User:
    return call.workspace.user(call.params.required("user", "user_not_found"))


def test(call: Call) -> Json:
    """auth.test: the token's owner. Raises MethodError not_allowed_token_type for the app-level token."""
    actor = call.actor
    answer: Json = {
        "url": f"{call.context.url}/",
        "team": call.workspace.team_name,
        "user": actor.name.lower(),
        "team_id": call.workspace.team_id,
        "user_id": actor.id,
        "is_enterprise_install": False,
    }
    return {**answer, "bot_id": actor.bot_id} if actor.is_bot else answer


def api_test(call: Call) -> Json:
    """api.test: returns its arguments; ``error`` makes it fail with that code. Slack allows this without a token,
    too."""
    arguments = {name: value for name, value in call.params.values.items() if name != "token"}
    if "error" in arguments:
        raise MethodError(str(arguments["error"]))
    return {"args": arguments}


def connections_open(call: Call) -> Json:
    """apps.connections.open: an address for one socket.

    Raises MethodError not_allowed_token_type for all but the app-level token.
    """
    if call.user is not None:
        raise MethodError("not_allowed_token_type")
    ticket = call.context.hub.connections.issue_ticket()
    return {"url": f"{call.context.socket_url}/link/?ticket={ticket}&app_id={call.workspace.app_id}"}


def bots_info(call: Call) -> Json:
    """bots.info: the app's own bot unless ``bot`` names another. Raises MethodError bot_not_found."""
    bot_id = call.params.text("bot", call.workspace.bot.bot_id)
    for user in call.workspace.users.values():
        if user.is_bot and user.bot_id == bot_id:
            return {"bot": render.bot_profile(call.workspace, user)}
    raise MethodError("bot_not_found")


def team_info(call: Call) -> Json:
    """team.info: the one team there is."""
    workspace = call.workspace
    return {"team": {"id": workspace.team_id, "name": workspace.team_name, "domain": "workspace"}}


def emoji_list(call: Call) -> Json:
    """No emoji of its own."""
    return {"emoji": {}, "cache_ts": str(call.workspace.now_s())}


def publish_view(call: Call) -> Json:
    """views.publish: a person's home tab.

    Raises MethodError user_not_found, hash_conflict, and the errors of an invalid view.
    """
    user = call.workspace.user(call.params.required("user_id", "user_not_found"))
    content = _view_argument(call)
    return _view_response(call, call.context.views.publish(user.id, content, call.params.text("hash")))


def open_view(call: Call) -> Json:
    """views.open: a modal, for somebody who has just acted.

    Raises MethodError invalid_trigger_id, exchanged_trigger_id, expired_trigger_id, and the errors of an
    invalid view.
    """
    content = _view_argument(call)
    return _view_response(call, call.context.views.open(_trigger(call), content))


def push_view(call: Call) -> Json:
    """views.push: a modal on top of the trigger's.

    Raises MethodError push_limit_reached, and as views.open does.
    """
    content = _view_argument(call)
    return _view_response(call, call.context.views.push(_trigger(call), content))


def update_view(call: Call) -> Json:
    """views.update: replace an open view's content, by ``view_id`` or ``external_id``.

    Raises MethodError not_found, hash_conflict, and the errors of an invalid view.
    """
    content = _view_argument(call)
    views = call.context.views
    view = views.find(call.params.text("view_id"), call.params.text("external_id"))
    return _view_response(call, views.update(view, content, call.params.text("hash")))


def _view_argument(call: Call) -> Json:
    """The view; only the app itself has views. Raises MethodError not_allowed_token_type, invalid_arguments."""
    if call.actor.id != call.workspace.bot.id:
        raise MethodError("not_allowed_token_type")
    view = call.params.object("view")
    if view is None:
        raise MethodError("invalid_arguments", ("[ERROR] missing required field: view",))
    return view


def _trigger(call: Call) -> str:
    return call.params.required("trigger_id", "invalid_trigger_id")


def _view_response(call: Call, view: View) -> Json:
    call.context.announcer.views_changed(view.user, call.context.views)
    return {"view": render.view(call.workspace, view)}
