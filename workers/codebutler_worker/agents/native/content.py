"""The text of an answer, separated from the reasoning and the calls that some services leave in it. Pure.

Reasoning: Mistral's models have a list of ``thinking`` and ``text`` chunks for ``content``, streamed and whole
(docs.mistral.ai/capabilities/reasoning, NousResearch/hermes-agent #4748); DeepSeek R1, Qwen 3 and Magistral write
``<think>`` or ``[THINK]`` into the text if the service has no parser for it, and some chat templates write the opening
one themselves, so that only ``</think>`` arrives.

Calls, if the service in front of a model did not parse its format: Hermes and Qwen's ``<tool_call>`` with JSON or with
``<function=…>`` inside (ggml-org/llama.cpp #16377, vllm-project/vllm #19056), GLM's ``<arg_key>``, Mistral's
``[TOOL_CALLS]`` as a list or as ``name[ARGS]{…}`` (vllm-project/vllm #20028, Devstral 2), Kimi K2's
``<|tool_call_begin|>``, DeepSeek's ``<invoke name=…>`` (NousResearch/hermes-agent #8965), plain or fenced JSON. Only
text at the very end of an answer is a call; in the middle of an answer it is a quotation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from codebutler_worker.agents.native.model import ToolCall

_OPENS = re.compile(r"\s*(?:<think(?:ing)?>|\[THINK\])")
_CLOSES = re.compile(r"</think(?:ing)?>|\[/THINK\]")
_CLOSES_ALONE = re.compile(r"^[ \t]*(?:</think(?:ing)?>|\[/THINK\])[ \t]*$", re.MULTILINE)
MOST_THOUGHTS = 100
_MAY_OPEN = ("<thinking>", "[THINK]")

Parameters = Mapping[str, Any]
"""The JSON Schema of a tool's arguments."""
Found = list[tuple[str, str]]
"""Calls: the tools' names, each with its arguments as JSON."""

# Linear on whatever a service sends: what no end follows is not searched for it again and again.
MOST_BEGINNINGS = 20
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=\s*([^<>\s]+)\s*>(.*?)(?:</function>|(?=<function=)|\Z)", re.DOTALL)
_INVOKE = re.compile(r"<invoke\s+name=\"([^\"]+)\"\s*>(.*?)(?:</invoke>|(?=<invoke\s)|\Z)", re.DOTALL)
_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>(.*?)"
    r"(?:<\|tool_call_end\|>|\Z)",
    re.DOTALL,
)
_PARAMETERS = (
    (
        re.compile(
            r"<parameter(?:=\s*([^<>\s]+)\s*|\s+name=\"([^\"]+)\"[^<>]*)>(.*?)</parameter>", re.DOTALL
        ),
        "</parameter>",
    ),
    (
        re.compile(r"<arg_key>([^<]*)()</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL),
        "</arg_value>",
    ),
)
"""Each with its end: two groups for the name, and one for the value."""
_MISTRAL = re.compile(
    r"(?:\[TOOL_CALLS\])?[\s,]*([\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?(?=\{)"
)
_LISTED = re.compile(r"\[TOOL_CALLS\]\s*(?=[\[{])")
_FENCE = re.compile(r"```(?:json|tool_call|tool_code)?\s*([{\[])")
_NAMED = re.compile(r"\"name\"\s*:\s*\"([^\"]+)\"")
_ARGUED = re.compile(r"\"(?:arguments|parameters)\"\s*:\s*")
_BEGINS = re.compile(
    r"<tool_call>|<function=|<function_calls>|<invoke\s|\[TOOL_CALLS\]|<\|tool_calls_section_begin\|>|"
    r"<\|tool_call_begin\|>"
)
_FRAME = re.compile(
    r"</?function_calls>|<\|tool_calls_section_(?:begin|end)\|>|</tool_call>|</s>|\uff5cDSML\uff5c"
)
_KEYS = frozenset({"id", "type", "name", "arguments", "parameters", "function"})


def words_of(content: Any) -> tuple[str, str]:
    """The answer and the reasoning in a message's ``content``, text or a list of parts."""
    if isinstance(content, str):
        return content, ""
    said: list[str] = []
    thought: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            said.append(part)
        elif isinstance(part, dict) and "thinking" in part:
            thought += words_of(part["thinking"])
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            said.append(part["text"])
    return "".join(said), "".join(thought)


def parted(text: str) -> tuple[str, str]:
    """The answer, and the reasoning before it."""
    thoughts: list[str] = []
    for _ in range(MOST_THOUGHTS):
        opened = _OPENS.match(text)
        begin = opened.end() if opened else 0
        closed = _CLOSES.search(text, begin) if opened else _CLOSES_ALONE.search(text)
        # In a code block, or in the middle of a sentence, it is quoted.
        if closed is None or (opened is None and text[: closed.start()].count("```") % 2):
            text, more = ("", text[begin:]) if opened else (text, "")
            thoughts.append(more.strip())
            break
        thoughts.append(text[begin : closed.start()].strip())
        text = text[closed.end() :].lstrip()
    return text, "\n\n".join(filter(None, thoughts))


def said_so_far(text: str) -> str:
    """The visible part of a text that is still arriving; "" during the reasoning."""
    begun = text.lstrip()
    if begun and any(mark.startswith(begun) for mark in _MAY_OPEN):
        return ""
    return parted(text)[0]


def before_calls(text: str) -> str:
    """The text before the first sign of a written call, which may be shown while more arrives."""
    found = _BEGINS.search(text)
    return text if found is None else text[: found.start()]


def written_calls(text: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text without the calls at its end, and these calls; ``tools`` are those that the model was offered."""
    offered = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    text = text.replace("\uff5cDSML\uff5c", "")
    for begins in islice(_BEGINS.finditer(text), MOST_BEGINNINGS) if offered else ():
        lead, tail = text[: begins.start()], text[begins.start() :]
        if lead.count("```") % 2 == 0 and (found := _read(tail, offered)):
            return lead.rstrip(), _made(found)
    if offered and (found := _bare(text, offered)):
        fence = text.find("```")
        return text[:fence].rstrip() if fence > 0 else "", _made(found)
    return text, ()


def _read(tail: str, offered: Mapping[str, Parameters]) -> Found:
    """The calls in ``tail``; empty if it contains anything else."""
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Found]], ...] = (
        (_TAGGED, lambda match: _tagged(match[1].strip(), offered)),
        (_FUNCTION, lambda match: [(match[1], _typed(match[2], offered.get(match[1], {})))]),
        (_INVOKE, lambda match: [(match[1], _typed(match[2], offered.get(match[1], {})))]),
        (_KIMI, lambda match: [(match[1], match[2].strip())]),
    )
    for pattern, read in readers:
        if matches := list(pattern.finditer(tail)):
            rest = _FRAME.sub("", pattern.sub("", tail)).strip()
            return [] if rest else [call for match in matches for call in read(match)]
    return _mistral(tail)


def _tagged(inside: str, offered: Mapping[str, Parameters]) -> Found:
    if inside.startswith(("{", "[")):
        return _decoded(inside) or _salvaged(inside)
    if found := [(match[1], match[2]) for match in _FUNCTION.finditer(inside)]:
        return [(name, _typed(body, offered.get(name, {}))) for name, body in found]
    name = inside.partition("<")[0].strip()
    return [(name, _typed(inside, offered.get(name, {})))] if name in offered else []


def _mistral(tail: str) -> Found:
    if listed := _LISTED.match(tail):
        return _decoded(tail[listed.end() :].strip())
    found: Found = []
    decoder, at = json.JSONDecoder(), 0
    while named := _MISTRAL.match(tail, at):
        try:
            _, at = decoder.raw_decode(tail, named.end())
        except (ValueError, RecursionError):
            return [*found, (named[1], tail[named.end() :].strip())]
        found.append((named[1], tail[named.end() : at]))
    return [] if tail[at:].strip() else found


def _bare(text: str, offered: Mapping[str, Parameters]) -> Found:
    """JSON that is the whole answer, or in the fence at its end: a call if it contains nothing else."""
    fenced, whole = _fenced(text), text.strip()
    if not fenced and not whole.startswith(("{", "[")):
        return []
    found = _decoded(fenced or whole)
    return found if all(name in offered for name, _ in found) else []


def _fenced(text: str) -> str:
    """What looks like JSON in the fence that ends the text; "" if there is none."""
    inside = text.rstrip().removesuffix("```").rstrip()
    ends = inside[-1:] if text.rstrip().endswith("```") else ""
    begins = (found for found in _FENCE.finditer(inside) if (found[1], ends) in (("{", "}"), ("[", "]")))
    found = next(begins, None)
    return inside[found.start(1) :] if found else ""


def _decoded(text: str) -> Found:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    each = value if isinstance(value, list) else [value]
    found = [_call(one) for one in each]
    return [call for call in found if call is not None] if None not in found else []


def _call(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, dict) or not _KEYS.issuperset(value):
        return None
    told = value["function"] if isinstance(value.get("function"), dict) else value
    name, given = told.get("name"), told.get("arguments", told.get("parameters"))
    if not isinstance(name, str) or not isinstance(given, dict | str):
        return None
    return name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _salvaged(text: str) -> Found:
    """A call that is not valid JSON as a whole; parsing its arguments may still succeed."""
    name, given = _NAMED.search(text), _ARGUED.search(text)
    return [(name[1], text[given.end() :].rstrip().removesuffix("}"))] if name and given else []


def _typed(body: str, parameters: Parameters) -> str:
    """Arguments written as text, converted to the types that the tool wants."""
    properties = parameters.get("properties") or {}
    given: dict[str, Any] = {}
    for pattern, end in _PARAMETERS:
        for match in pattern.finditer(body, 0, body.rfind(end) + len(end)):
            key = (match[1] or match[2]).strip()
            text = match[3].removeprefix("\n").removesuffix("\n")
            given[key] = _value(text, properties.get(key) or {})
    return json.dumps(given, ensure_ascii=False)


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _made(found: Iterable[tuple[str, str]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall("", name.removeprefix("functions."), given or "{}") for name, given in found)
