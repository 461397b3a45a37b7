"""The parts of Block Kit that the workspace needs: block IDs, finding a button, people's choices and texts in
interactive elements, and what is refused: unknown types, texts that are missing, of the wrong type or too long,
duplicate IDs. Pure.

An answer of the page is ``{block_id: {action_id: value}}``, a value being the typed text or the ``value`` of the chosen
option(s). Slack's state is ``{block_id: {action_id: {"type": ..., field: ...}}}``. Source: Slack's reference of Block
Kit, of block elements and of the state of views; the error messages resemble Slack's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from codebutler.workspace.state import Json, MethodError

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
LIST_FIELDS = frozenset({"selected_options", "selected_users", "selected_channels", "selected_conversations"})
OPTION_FIELDS = frozenset({"selected_option", "selected_options"})
STATELESS = frozenset({"overflow"})
REQUIRED = "Please complete this required field."
EMAIL_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*")
MAX_BLOCKS = 50
MAX_MARKDOWN_CHARS = 12_000
# fmt: off
BLOCKS = frozenset((
    "actions", "alert", "call", "card", "carousel", "context", "context_actions", "data_table", "divider", "file",
    "header", "image", "input", "markdown", "plan", "rich_text", "section", "table", "task_card", "video",
))
CONTROLS = frozenset((
    *FIELDS, "button", "workflow_button", "file_input", "rich_text_input", "multi_external_select", "icon_button",
    "feedback_buttons",
))
# fmt: on
MAX_ACTION_ELEMENTS = 25
MAX_CONTEXT_ELEMENTS = 10
MAX_FIELDS = 10
MAX_TEXT_CHARS = 3000
MAX_ID_CHARS = 255
MAX_OPTIONS = {"checkboxes": 10, "radio_buttons": 10, "overflow": 5}
MAX_SELECT_OPTIONS = 100
WITH_OPTIONS = frozenset(("static_select", "multi_static_select", *MAX_OPTIONS))
# Place -> maximum number of characters of its plain text.
PLAIN_TEXTS = {"placeholder": 150, "label": 2000, "hint": 2000}
CONFIRM_TEXTS = {"title": 100, "text": 300, "confirm": 30, "deny": 30}
STRINGS = {"value": 2000, "action_id": MAX_ID_CHARS, "url": 3000, "image_url": 3000, "alt_text": 2000}


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


def answer_value(element: Json, value: Any) -> Any:
    """A page's value in Slack's form. Raises MethodError invalid_arguments for an unknown option."""
    field = FIELDS.get(str(element.get("type")), "value")
    if field in LIST_FIELDS:
        return [_choice_value(element, field, item) for item in value or []]
    if value in (None, ""):
        return None
    return _choice_value(element, field, value)


def state_values(blocks: list[Json], answers: Json) -> Json:
    """The state of every element that has one: its answer, or its initial value."""
    values: Json = {}
    for block in blocks:
        for element in elements(block):
            kind, action_id = str(element.get("type")), str(element.get("action_id"))
            if kind not in FIELDS or kind in STATELESS:
                continue
            typed = answers.get(block["block_id"]) or {}
            value = answer_value(element, typed[action_id]) if action_id in typed else _initial(element)
            values.setdefault(block["block_id"], {})[action_id] = {"type": kind, FIELDS[kind]: value}
    return values


def form_problems(blocks: list[Json], values: Json) -> dict[str, str]:
    """Errors that prevent submitting a form, by block: those that Slack's own clients check."""
    found: dict[str, str] = {}
    for block in blocks:
        element = block.get("element")
        if block.get("type") != "input" or not isinstance(element, dict):
            continue
        answer = values.get(block["block_id"], {}).get(element.get("action_id"), {})
        value = answer.get(FIELDS.get(str(element.get("type")), "value"))
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
            return "" if EMAIL_ADDRESS.fullmatch(text) else "Please enter a valid email address."
        case "url_text_input":
            return (
                ""
                if WEB_ADDRESS.fullmatch(text)
                else "Please enter a valid address, beginning with https://."
            )
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
    minimum, maximum = element.get("min_value"), element.get("max_value")
    if minimum is not None and number < float(minimum):
        return f"Please enter {minimum} or more."
    if maximum is not None and number > float(maximum):
        return f"Please enter {maximum} or less."
    return ""


def _initial(element: Json) -> Any:
    field = FIELDS[str(element["type"])]
    value = element.get(f"initial_{field.removeprefix('selected_')}")
    return ([] if field in LIST_FIELDS else None) if value is None else value


def _choice_value(element: Json, field: str, value: Any) -> Any:
    if field not in OPTION_FIELDS:
        return value
    # The options of an external select are in the app; the page returns the whole option that it got.
    if isinstance(value, dict) and "external" in str(element.get("type")):
        return value
    for option in options(element):
        if option.get("value") == value:
            return option
    raise MethodError("invalid_arguments", (f"no option {value!r}",))


def checked_blocks(blocks: list[Json], limit: int = MAX_BLOCKS) -> list[Json]:
    """The blocks as Slack would store them, each with a block_id, each interactive element with an action_id. Raises
    MethodError invalid_blocks or msg_blocks_too_long."""
    if len(blocks) > limit:
        raise invalid(f"no more than {limit} items allowed", "/blocks")
    markdown_chars = sum(len(_text(block)) for block in blocks if block.get("type") == "markdown")
    if markdown_chars > MAX_MARKDOWN_CHARS:
        raise MethodError("msg_blocks_too_long")
    check(blocks)
    return [_with_ids(block, index) for index, block in enumerate(blocks)]


def find_action(blocks: list[Json], action_id: str, block_id: str = "") -> Json | None:
    """The element with this action_id, plus its block's ID; None if the message has none (any more)."""
    for block in blocks:
        if block_id and block.get("block_id") != block_id:
            continue
        for element in elements(block):
            if element.get("action_id") == action_id:
                return {**element, "block_id": block.get("block_id", "")}
    return None


def _with_ids(block: Json, index: int) -> Json:
    """The block with the IDs that Slack adds if the app gave none."""
    block_with_ids = {"block_id": f"b{index}", **block}
    if block["type"] in ("actions", "input", "section"):
        for place in ("accessory", "element"):
            if isinstance(block.get(place), dict) and block[place].get("type") != "image":
                block_with_ids[place] = {"action_id": f"{place}{index}", **block[place]}
    if block["type"] == "actions":
        row = enumerate(elements(block))
        block_with_ids["elements"] = [{"action_id": f"element{index}-{at}", **element} for at, element in row]
    return block_with_ids


def _text(item: Json) -> str:
    text = item.get("text")
    if isinstance(text, dict):
        text = text.get("text")
    return text if isinstance(text, str) else ""


def invalid(reason: str, pointer: str) -> MethodError:
    """Slack's refusal, with the place as a JSON pointer."""
    return MethodError("invalid_blocks", (f"[ERROR] {reason} [json-pointer:{pointer}]",))


def check(blocks: list[Json]) -> None:
    """Raises MethodError invalid_blocks for the first error."""
    _check_unique(
        (str(block["block_id"]) for block in blocks if block.get("block_id")), "block_id", "/blocks"
    )
    for index, block in enumerate(blocks):
        _check_block(block, f"/blocks/{index}")


def _check_block(block: Json, pointer: str) -> None:
    kind = block.get("type")
    if kind not in BLOCKS:
        raise invalid(f"unsupported type: {kind}", f"{pointer}/type")
    _check_length(block, "block_id", MAX_ID_CHARS, pointer)
    match kind:
        case "section":
            _check_section(block, pointer)
        case "header":
            _check_text(block.get("text"), 150, f"{pointer}/text", plain=True)
        case "image":
            _check_image(block, pointer)
        case "input":
            _check_text(block.get("label"), PLAIN_TEXTS["label"], f"{pointer}/label", plain=True)
            if not isinstance(block.get("element"), dict):
                raise invalid("missing required field: element", pointer)
        case "context":
            _check_context(block, pointer)
        case "actions":
            _check_count(block.get("elements"), MAX_ACTION_ELEMENTS, f"{pointer}/elements")
    found = list(elements(block)) if kind in ("section", "input", "actions") else []
    _check_unique((str(one["action_id"]) for one in found if one.get("action_id")), "action_id", pointer)
    for element in found:
        _check_element(element, pointer)


def _check_section(block: Json, pointer: str) -> None:
    fields = block.get("fields")
    if not block.get("text") and not fields:
        raise invalid("missing required field: text or fields", pointer)
    if block.get("text"):
        _check_text(block["text"], MAX_TEXT_CHARS, f"{pointer}/text")
    if fields is not None:
        _check_count(fields, MAX_FIELDS, f"{pointer}/fields")
        for field in fields:
            _check_text(field, 2000, f"{pointer}/fields")


def _check_context(block: Json, pointer: str) -> None:
    found = block.get("elements")
    _check_count(found, MAX_CONTEXT_ELEMENTS, f"{pointer}/elements")
    for element in found or []:
        if isinstance(element, dict) and element.get("type") == "image":
            _check_image(element, f"{pointer}/elements")
        else:
            _check_text(element, MAX_TEXT_CHARS, f"{pointer}/elements")


def _check_image(image: Json, pointer: str) -> None:
    if not image.get("alt_text"):
        raise invalid("missing required field: alt_text", pointer)
    if not image.get("image_url") and not image.get("slack_file"):
        raise invalid("missing required field: image_url or slack_file", pointer)
    for name in ("alt_text", "image_url"):
        _check_length(image, name, STRINGS[name], pointer)


def _check_element(element: Json, pointer: str) -> None:
    kind = str(element.get("type"))
    if kind == "image":
        _check_image(element, pointer)
        return
    if kind not in CONTROLS:
        raise invalid(f"unsupported type: {kind}", f"{pointer}/type")
    if kind == "button":
        _check_button(element, pointer)
    for name, limit in STRINGS.items():
        _check_length(element, name, limit, pointer)
    if element.get("placeholder") is not None:
        _check_text(element["placeholder"], PLAIN_TEXTS["placeholder"], f"{pointer}/placeholder", plain=True)
    _check_confirm(element.get("confirm"), f"{pointer}/confirm")
    if kind in WITH_OPTIONS:
        _check_options(element, MAX_OPTIONS.get(kind, MAX_SELECT_OPTIONS), pointer)


def _check_button(button: Json, pointer: str) -> None:
    _check_text(button.get("text"), 75, f"{pointer}/text", plain=True)
    if button.get("style") not in (None, "primary", "danger"):
        raise invalid("must be a valid enum value", f"{pointer}/style")


def _check_confirm(confirm: Any, pointer: str) -> None:
    for name, limit in CONFIRM_TEXTS.items():
        if isinstance(confirm, dict) and name in confirm:
            _check_text(confirm[name], limit, f"{pointer}/{name}")


def _check_options(element: Json, limit: int, pointer: str) -> None:
    found = options(element)
    _check_count(found, limit, f"{pointer}/options")
    for option in found:
        _check_text(option.get("text"), 75, f"{pointer}/options/text")
        _check_length(option, "value", 150, f"{pointer}/options")


def _check_text(value: Any, limit: int, pointer: str, *, plain: bool = False) -> None:
    """A non-empty text object; ``plain``: no mrkdwn."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise invalid("missing required field: text", pointer)
    kinds = ("plain_text",) if plain else ("plain_text", "mrkdwn")
    if value.get("type") not in kinds:
        raise invalid(f"must be a valid enum value: {' or '.join(kinds)}", f"{pointer}/type")
    if not 0 < len(value["text"]) <= limit:
        raise invalid(f"must have 1 to {limit} characters", f"{pointer}/text")


def _check_length(item: Json, name: str, limit: int, pointer: str) -> None:
    if len(str(item.get(name) or "")) > limit:
        raise invalid(f"must be less than {limit + 1} characters", f"{pointer}/{name}")


def _check_count(items: Any, limit: int, pointer: str) -> None:
    if not isinstance(items, list) or not 0 < len(items) <= limit:
        raise invalid(f"between 1 and {limit} items allowed", pointer)


def _check_unique(ids: Iterable[str], name: str, pointer: str) -> None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise invalid(f"{name} already exists: {one}", pointer)
        seen.add(one)
