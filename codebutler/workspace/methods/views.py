"""views.*: accepted and kept, so that an app's home or dialog can be looked at; the page shows none."""

from __future__ import annotations

from codebutler.workspace.calls import Call, Method
from codebutler.workspace.state import Json, MethodError

MAX_VIEW_BLOCKS = 100


def publish(call: Call) -> Json:
    user = call.workspace.user(call.params.needed("user_id", "user_not_found"))
    return {"view": _keep(call, f"home:{user.id}", "home")}


def open_view(call: Call) -> Json:
    trigger = call.params.needed("trigger_id", "invalid_trigger_id")
    return {"view": _keep(call, f"modal:{trigger}", "modal")}


def _keep(call: Call, key: str, kind: str) -> Json:
    view = call.params.object("view")
    if not call.actor.is_bot or view is None:
        raise MethodError("invalid_arguments")
    if view.get("type") != kind or len(view.get("blocks") or []) > MAX_VIEW_BLOCKS:
        raise MethodError("invalid_arguments")
    kept = {
        **view,
        "id": call.workspace.next_id("V"),
        "team_id": call.workspace.team_id,
        "app_id": call.workspace.app_id,
        "bot_id": call.actor.bot_id,
    }
    call.workspace.views[key] = kept
    return kept


METHODS: dict[str, Method] = {"views.publish": publish, "views.open": open_view}
