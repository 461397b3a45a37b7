"""users.* and other methods that small bots use about people."""

from __future__ import annotations

from codebutler.workspace import render
from codebutler.workspace.calls import Call, Method
from codebutler.workspace.params import page
from codebutler.workspace.records import Json, MethodError, User


def info(call: Call) -> Json:
    """Raises MethodError user_not_found."""
    call.actor  # noqa: B018 - the app-level token may not ask
    return {"user": render.user(call.workspace, _named(call))}


def list_users(call: Call) -> Json:
    """users.list: everybody, bots too, a page at a time."""
    call.actor  # noqa: B018 - the app-level token may not ask
    users, cursor = page(list(call.workspace.users.values()), call.params)
    return {
        "members": [render.user(call.workspace, user) for user in users],
        "cache_ts": call.workspace.now_s(),
        "response_metadata": {"next_cursor": cursor},
    }


def lookup(call: Call) -> Json:
    """By the address in users.info. Raises MethodError users_not_found."""
    call.actor  # noqa: B018 - the app-level token may not ask
    address = call.params.needed("email", "users_not_found").lower()
    for user in call.workspace.users.values():
        if not user.is_bot and render.email(user) == address:
            return {"user": render.user(call.workspace, user)}
    raise MethodError("users_not_found")


def profile(call: Call) -> Json:
    """The caller's own unless ``user`` is given."""
    user = _named(call) if call.params.has("user") else call.actor
    return {"profile": render.user(call.workspace, user)["profile"]}


def presence(call: Call) -> Json:
    """users.getPresence: everybody is always active."""
    call.actor  # noqa: B018 - the app-level token may not ask
    if call.params.has("user"):
        _named(call)
    return {"presence": "active", "online": True, "auto_away": False, "manual_away": False}


def groups(call: Call) -> Json:
    """Always empty."""
    call.actor  # noqa: B018 - the app-level token may not ask
    return {"usergroups": []}


def _named(call: Call) -> User:
    return call.workspace.user(call.params.needed("user", "user_not_found"))


METHODS: dict[str, Method] = {
    "users.info": info,
    "users.list": list_users,
    "users.lookupByEmail": lookup,
    "users.profile.get": profile,
    "users.getPresence": presence,
    "usergroups.list": groups,
}
