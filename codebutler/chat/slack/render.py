"""Renders messages for Slack: mrkdwn and Block Kit. Pure.

Whatever a text contains, it notifies only those whom ``names`` and ``mention`` allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from codebutler.chat.layout import Box, Section, sections
from codebutler.chat.slack.mrkdwn import BACKTICK, clip_mrkdwn, link, neutralise, safe, to_mrkdwn
from codebutler.domain.message import PICK_ACTION, Button, Message
from codebutler.domain.model import Mark
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.text.markup import CHANNEL, FENCE, PERSON, Span, spans, words
from codebutler.text.redact import every_text

# chat.postMessage takes more than 4,000 characters of text, but 4,000 reads best; chat.update takes no more.
FALLBACK_CHARS = 4000
CARD_CHARS = 3500
SHORT_CHARS = 3900
FOREIGN_CHARS = 6000
MAX_CHARS = 50_000
"""How much of a text is rendered at all; Slack takes less."""
# Slack's own limits.
SECTION_CHARS = 3000
LABEL_CHARS = 75
MAX_BOXES = 10
MAX_ROW = 25
MAX_SECTIONS = 100
USER = "[UW][A-Z0-9]{1,30}"

Blocks = list[dict[str, Any]]
REACTIONS: Mapping[Mark, str] = MappingProxyType(
    {
        "queued": "hourglass_flowing_sand",
        "working": "eyes",
        "waiting": "raised_hand",
        "done": "white_check_mark",
        "failed": "x",
        "stopped": "octagonal_sign",
    }
)
FINAL = frozenset(REACTIONS[mark] for mark in ("done", "failed", "stopped"))
"""On a message whose turn has ended."""


def rendered(
    message: Message, mention: PersonRef = NO_PERSON, redact: Callable[[str], str] = str
) -> tuple[str, Blocks]:
    """The text, which is the notification, and the blocks, which Slack shows instead if there are any.
    ``mention``: a user to mention. ``redact`` sees every text last."""
    call = f"<@{mention}> " if re.fullmatch(USER, mention) else ""
    laid = sections(message)[:MAX_SECTIONS]
    text = "\n".join(shown for part in laid if (shown := mrkdwn(part, message.names)))
    if message.summary:
        text = mrkdwn(Section(message.summary)) or text
    if message.is_short:
        text = text or "(this message cannot be shown)"
        return redact(call + clip_mrkdwn(text, SHORT_CHARS)), []
    limit = FALLBACK_CHARS if message.is_foreign else CARD_CHARS
    if len(text) > limit and (message.is_foreign or message.card or message.buttons):
        text = clip_mrkdwn(text, limit)
    has_blocks = message.is_foreign or any(part.kind != "text" or part.buttons for part in laid)
    blocks = blocks_of(laid, message.names) if has_blocks or len(laid) > 1 else []
    return redact(call + text), every_text(_calling(call, blocks) if call else blocks, redact)


def blocks_of(parts: Iterable[Section], names: Collection[PersonRef] = ()) -> Blocks:
    """The parts one below the other, with a line above those that stand apart."""
    blocks: Blocks = []
    for part in parts:
        if part.begins and blocks:
            blocks.append({"type": "divider"})
        if part.kind == "foreign" and part.markdown:
            blocks.append({"type": "markdown", "text": neutralise(part.markdown)})
        elif part.markdown:
            blocks.append(_text_block(part, names))
        if part.boxes:
            blocks.append(_boxes(part.boxes))
        if part.buttons:
            blocks += _rows(part.buttons)
    return blocks


def mrkdwn(part: Section, names: Collection[PersonRef] = ()) -> str:
    """A part's text. ``names``: users whom it may mention."""
    source = part.markdown[:MAX_CHARS]
    if part.kind in ("foreign", "plan"):
        return to_mrkdwn(source[:FOREIGN_CHARS])
    return _own(source, names)


def _own(markdown: str, names: Collection[PersonRef]) -> str:
    return "".join(_span(span, names) for span in spans(markdown))


def _span(span: Span, names: Collection[PersonRef]) -> str:
    match span.kind:
        case "code":
            return f"`{safe(span.text.replace('`', BACKTICK))}`"
        case "fence":
            return f"{FENCE}\n{safe(span.text)}\n{FENCE}"
        case "bold":
            return f"*{_own(span.text, names)}*"
        case "italic":
            return f"_{_own(span.text, names)}_"
        case "quote":
            return "> "
        case "link" if span.url.startswith(PERSON):
            user = span.url.removeprefix(PERSON)
            return f"<@{user}>" if user in names and re.fullmatch(USER, user) else safe(words(span.text))
        case "link" if span.url.startswith(CHANNEL):
            return f"<#{safe(span.url.removeprefix(CHANNEL))}>"
        case "link":
            return link(span.url, words(span.text))
        case _:
            return safe(span.text)


def _text_block(part: Section, names: Collection[PersonRef]) -> dict[str, Any]:
    if part.kind == "heading":
        return {"type": "header", "text": _plain(words(part.markdown))}
    text = {"type": "mrkdwn", "text": clip_mrkdwn(mrkdwn(part, names), SECTION_CHARS)}
    if part.kind == "note":
        return {"type": "context", "elements": [text]}
    # Not behind "see more" if a person decides about all of it.
    expand = {"expand": True} if part.kind in ("whole", "plan") else {}
    return {"type": "section", "text": text, **expand}


def _rows(buttons: Sequence[Button]) -> Blocks:
    """Slack requires different action IDs in a row."""
    rows: list[list[Button]] = []
    for button in buttons:
        if not rows or len(rows[-1]) == MAX_ROW or button.action in {other.action for other in rows[-1]}:
            rows.append([])
        rows[-1].append(button)
    return [_row(*map(_button, row)) for row in rows]


def _button(button: Button) -> dict[str, Any]:
    element = {
        "type": "button",
        "text": _plain(button.label),
        "action_id": button.action,
        "value": button.value,
    }
    return {**element, "style": button.style} if button.style else element


def _boxes(boxes: Sequence[Box]) -> dict[str, Any]:
    options = [_option(box) for box in boxes[:MAX_BOXES]]
    group: dict[str, Any] = {"type": "checkboxes", "action_id": PICK_ACTION, "options": options}
    if ticked := [option for option, box in zip(options, boxes, strict=False) if box.ticked]:
        group["initial_options"] = ticked
    return {**_row(group), "block_id": boxes[0].value.rpartition(":")[0]}


def _option(box: Box) -> dict[str, Any]:
    option: dict[str, Any] = {"text": _plain(box.label), "value": box.value}
    return {**option, "description": _plain(box.detail)} if box.detail else option


def _row(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements)}


def _plain(text: str) -> dict[str, Any]:
    shown = neutralise(text) or "…"
    return {
        "type": "plain_text",
        "text": shown if len(shown) <= LABEL_CHARS else f"{shown[: LABEL_CHARS - 1]}…",
    }


def _calling(call: str, blocks: Blocks) -> Blocks:
    """The blocks with the mention on top; in a separate section if the first is not mrkdwn with room for it:
    Slack does not document whether a mention in a Markdown block notifies anybody."""
    if not blocks:
        return []
    first, *rest = blocks
    if first["type"] == "section" and len(shown := call + first["text"]["text"]) <= SECTION_CHARS:
        return [{**first, "text": {**first["text"], "text": shown}}, *rest]
    return [{"type": "section", "text": {"type": "mrkdwn", "text": call.strip()}}, *blocks]
