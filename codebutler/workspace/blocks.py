"""Block Kit as far as the workspace must know it: Slack's limits, block ids, and finding a button. Pure."""

from __future__ import annotations

from codebutler.workspace.elements import elements, options
from codebutler.workspace.state import Json, MethodError

MAX_BLOCKS = 50
MAX_MARKDOWN_CHARS = 12_000
# Element type or place -> (field, most characters). Source: Slack's Block Kit reference.
TEXT_LIMITS = {"section": 3000, "header": 150, "button": 75}
MAX_ACTION_ELEMENTS = 25
MAX_CONTEXT_ELEMENTS = 10
MAX_FIELDS = 10
MAX_VALUE_CHARS = 2000
MAX_ACTION_ID_CHARS = 255
MAX_OPTIONS = {"checkboxes": 10, "radio_buttons": 10, "overflow": 5}
MAX_SELECT_OPTIONS = 100


def accepted(blocks: list[Json], most: int = MAX_BLOCKS) -> list[Json]:
    """The blocks as Slack would keep them, each with a block_id, each interactive element with an action_id.

    Raises MethodError invalid_blocks or msg_blocks_too_long.
    """
    if len(blocks) > most:
        raise invalid(f"no more than {most} items allowed [json-pointer:/blocks]")
    markdown_chars = sum(len(_text(block)) for block in blocks if block.get("type") == "markdown")
    if markdown_chars > MAX_MARKDOWN_CHARS:
        raise MethodError("msg_blocks_too_long")
    for index, block in enumerate(blocks):
        _check(block, f"/blocks/{index}")
    return [_named(block, index) for index, block in enumerate(blocks)]


def invalid(reason: str) -> MethodError:
    return MethodError("invalid_blocks", (f"[ERROR] {reason}",))


def find_action(blocks: list[Json], action_id: str, block_id: str = "") -> Json | None:
    """The element with this action_id, its block's id added; None when the message has none (any more)."""
    for block in blocks:
        if block_id and block.get("block_id") != block_id:
            continue
        for element in elements(block):
            if element.get("action_id") == action_id:
                return {**element, "block_id": block.get("block_id", "")}
    return None


def _named(block: Json, index: int) -> Json:
    """The block with the ids that Slack gives where the app gave none."""
    named = {"block_id": f"b{index}", **block}
    if block["type"] in ("actions", "input", "section"):
        for place in ("accessory", "element"):
            if isinstance(block.get(place), dict) and block[place].get("type") != "image":
                named[place] = {"action_id": f"{place}{index}", **block[place]}
    if block["type"] == "actions":
        row = enumerate(elements(block))
        named["elements"] = [{"action_id": f"element{index}-{at}", **element} for at, element in row]
    return named


def _check(block: Json, where: str) -> None:
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        raise invalid(f"must provide a type [json-pointer:{where}/type]")
    if kind in TEXT_LIMITS and len(_text(block)) > TEXT_LIMITS[kind]:
        raise invalid(
            f"must be less than {TEXT_LIMITS[kind] + 1} characters [json-pointer:{where}/text/text]"
        )
    if kind == "section" and not (block.get("text") or block.get("fields")):
        raise invalid(f"a section needs text or fields [json-pointer:{where}]")
    if len(block.get("fields") or []) > MAX_FIELDS:
        raise invalid(f"no more than {MAX_FIELDS} items allowed [json-pointer:{where}/fields]")
    if kind == "input" and not (
        isinstance(block.get("element"), dict) and _text({"text": block.get("label")})
    ):
        raise invalid(f"an input needs a label and an element [json-pointer:{where}]")
    _check_elements(block, where)


def _check_elements(block: Json, where: str) -> None:
    found = list(elements(block))
    most = {"actions": MAX_ACTION_ELEMENTS, "context": MAX_CONTEXT_ELEMENTS}.get(block["type"])
    if most is not None and not 0 < len(found) <= most:
        raise invalid(f"between 1 and {most} items allowed [json-pointer:{where}/elements]")
    for element in found:
        if element.get("type") == "button" and not 0 < len(_text(element)) <= TEXT_LIMITS["button"]:
            raise invalid(f"button text must have 1 to {TEXT_LIMITS['button']} characters [{where}]")
        if len(options(element)) > MAX_OPTIONS.get(str(element.get("type")), MAX_SELECT_OPTIONS):
            raise invalid(f"too many options [json-pointer:{where}]")
        if len(str(element.get("value") or "")) > MAX_VALUE_CHARS:
            raise invalid(f"value must be less than {MAX_VALUE_CHARS + 1} characters [{where}]")
        if len(str(element.get("action_id") or "")) > MAX_ACTION_ID_CHARS:
            raise invalid(f"action_id must be less than {MAX_ACTION_ID_CHARS + 1} characters [{where}]")


def _text(item: Json) -> str:
    text = item.get("text")
    if isinstance(text, dict):
        text = text.get("text")
    return text if isinstance(text, str) else ""
