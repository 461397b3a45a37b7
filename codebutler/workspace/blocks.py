"""Block Kit as far as the workspace must know it: Slack's limits, block ids, and finding a button. Pure."""

from __future__ import annotations

from codebutler.workspace.checks import check, invalid
from codebutler.workspace.elements import elements
from codebutler.workspace.records import Json, MethodError

MAX_BLOCKS = 50
MAX_MARKDOWN_CHARS = 12_000


def accepted(blocks: list[Json], most: int = MAX_BLOCKS) -> list[Json]:
    """The blocks as Slack would keep them, each with a block_id, each interactive element with an action_id.

    Raises MethodError invalid_blocks or msg_blocks_too_long.
    """
    if len(blocks) > most:
        raise invalid(f"no more than {most} items allowed", "/blocks")
    markdown_chars = sum(len(_text(block)) for block in blocks if block.get("type") == "markdown")
    if markdown_chars > MAX_MARKDOWN_CHARS:
        raise MethodError("msg_blocks_too_long")
    check(blocks)
    return [_named(block, index) for index, block in enumerate(blocks)]


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


def _text(item: Json) -> str:
    text = item.get("text")
    if isinstance(text, dict):
        text = text.get("text")
    return text if isinstance(text, str) else ""
