"""A person's choices and texts in interactive elements, in Slack's form, and their errors. Pure.

An answer of the page is ``{block_id: {action_id: value}}``, a value being the typed text or the ``value`` of
the chosen option(s). Slack's state is ``{block_id: {action_id: {"type": ..., field: ...}}}``. Source: Slack's
reference of block elements and of the state of views.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from codebutler.workspace.records import Json, MethodError

# Element type -> the field of its answer.
FIELDS = {
    "plain_text_input": "value",
    "email_text_input": "value",
    "url_text_input": "value",
    "number_input": "value",
    "static_select": "selected_option",
    "external_select": "selected_option",
    "radio_buttons": "selected_option",
    "overflow": "selected_option",
    "checkboxes": "selected_options",
    "multi_static_select": "selected_options",
    "multi_external_select": "selected_options",
    "users_select": "selected_user",
    "multi_users_select": "selected_users",
    "channels_select": "selected_channel",
    "multi_channels_select": "selected_channels",
    "conversations_select": "selected_conversation",
    "multi_conversations_select": "selected_conversations",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "datetimepicker": "selected_date_time",
}
LISTS = frozenset({"selected_options", "selected_users", "selected_channels", "selected_conversations"})
OPTIONS = frozenset({"selected_option", "selected_options"})
STATELESS = frozenset({"overflow"})
REQUIRED = "Please complete this required field."
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
WEB = re.compile(r"https?://[^\s/]+\S*")


def elements(block: Json) -> Iterator[Json]:
    """A block's interactive elements: of its row, its accessory, its input."""
    row = block.get("elements")
    if isinstance(row, list):
        yield from (element for element in row if isinstance(element, dict))
    for place in ("accessory", "element"):
        element = block.get(place)
        if isinstance(element, dict):
            yield element


def options(element: Json) -> list[Json]:
    """Every option of an element, its groups' included."""
    known = list(element.get("options") or [])
    for group in element.get("option_groups") or []:
        known += group.get("options") or []
    return known


def answered(element: Json, value: Any) -> Any:
    """A page's value in Slack's form. Raises MethodError invalid_arguments for an unknown option."""
    field = FIELDS.get(str(element.get("type")), "value")
    if field in LISTS:
        return [_chosen(element, field, item) for item in value or []]
    if value in (None, ""):
        return None
    return _chosen(element, field, value)


def state(blocks: list[Json], answers: Json) -> Json:
    """The state of every element that has one: its answer, or its initial value."""
    values: Json = {}
    for block in blocks:
        for element in elements(block):
            kind, action_id = str(element.get("type")), str(element.get("action_id"))
            if kind not in FIELDS or kind in STATELESS:
                continue
            given = answers.get(block["block_id"]) or {}
            value = answered(element, given[action_id]) if action_id in given else _initial(element)
            values.setdefault(block["block_id"], {})[action_id] = {"type": kind, FIELDS[kind]: value}
    return values


def problems(blocks: list[Json], values: Json) -> dict[str, str]:
    """Errors that prevent submitting a form, by block: those that Slack's own clients check."""
    found: dict[str, str] = {}
    for block in blocks:
        element = block.get("element")
        if block.get("type") != "input" or not isinstance(element, dict):
            continue
        told = values.get(block["block_id"], {}).get(element.get("action_id"), {})
        value = told.get(FIELDS.get(str(element.get("type")), "value"))
        if problem := _problem(block, element, value):
            found[block["block_id"]] = problem
    return found


def _problem(block: Json, element: Json, value: Any) -> str:
    if value in (None, "", []):
        return "" if block.get("optional") else REQUIRED
    text = str(value)
    match element.get("type"):
        case "plain_text_input":
            return _length_problem(element, len(text))
        case "email_text_input":
            return "" if MAIL.fullmatch(text) else "Please enter a valid email address."
        case "url_text_input":
            return "" if WEB.fullmatch(text) else "Please enter a valid address, beginning with https://."
        case "number_input":
            return _number_problem(element, text)
    return ""


def _length_problem(element: Json, length: int) -> str:
    if length < int(element.get("min_length") or 0):
        return f"Please write at least {element['min_length']} characters."
    if length > int(element.get("max_length") or 3000):
        return f"Please write at most {element.get('max_length') or 3000} characters."
    return ""


def _number_problem(element: Json, text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return "Please enter a number."
    if not element.get("is_decimal_allowed") and not number.is_integer():
        return "Please enter a whole number."
    least, most = element.get("min_value"), element.get("max_value")
    if least is not None and number < float(least):
        return f"Please enter {least} or more."
    if most is not None and number > float(most):
        return f"Please enter {most} or less."
    return ""


def _initial(element: Json) -> Any:
    field = FIELDS[str(element["type"])]
    value = element.get(f"initial_{field.removeprefix('selected_')}")
    return ([] if field in LISTS else None) if value is None else value


def _chosen(element: Json, field: str, value: Any) -> Any:
    if field not in OPTIONS:
        return value
    # The options of an external select are in the app; the page returns the whole option that it got.
    if isinstance(value, dict) and "external" in str(element.get("type")):
        return value
    for option in options(element):
        if option.get("value") == value:
            return option
    raise MethodError("invalid_arguments", (f"no option {value!r}",))
