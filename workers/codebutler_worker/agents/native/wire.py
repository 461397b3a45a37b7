"""Chat completions as JSON: requests out, streamed chunks in. Pure.

Source: OpenAI API reference, Chat Completions; also as spoken by Moonshot (Kimi), Groq, Ollama, vLLM and others, with
their differences: usage in the last choice, calls without an index or an id, a whole answer instead of a stream, text
as a list of parts (``prose``), calls inside the text (``written_calls``), a ``refusal`` in their place,
``extra_content`` of a call that Gemini 3 wants back (ai.google.dev, gemini-api/docs/thought-signatures). Sample answers
of several services: ``tests/golden/services``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import LINE_CHARS
from codebutler_worker.agents.native.content import before_calls, parted, said_so_far, words_of, written_calls
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    ModelError,
    ModelReply,
    ModelRequest,
    TokenCount,
    ToolCall,
    ToolMessage,
)
from codebutler_worker.agents.native.services import Dialect, alternated, refusal
from codebutler_worker.tools.lenient_json import UnreadableError, parse_message

NO_REASONING = " "
ERROR_CHARS = 8_000
END = "[DONE]"


class FunctionPart(msgspec.Struct):
    """A piece of a call: the name comes once, the arguments (JSON) in pieces of any size, from some services as an
    object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPart(msgspec.Struct):
    """A piece of the call at ``index``; some services omit the index and send a call at once."""

    index: int | None = None
    id: str | None = None
    function: FunctionPart | None = None
    extra_content: Any = None


class AnswerPart(msgspec.Struct):
    """The content of an answer or of a piece of one; services have two names for the reasoning."""

    content: Any = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: list[CallPart] | None = None


class CachedTokens(msgspec.Struct):
    """How many tokens of the prompt came from the service's cache."""

    cached_tokens: int | None = None


class UsagePart(msgspec.Struct):
    """The service's token counts; ``cached_tokens`` is where Kimi puts what others put into the details."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None


class ChoicePart(msgspec.Struct):
    """One answer: whole (``message``) or a piece (``delta``). Kimi reports the usage here."""

    delta: AnswerPart | None = None
    message: AnswerPart | None = None
    finish_reason: str | None = None
    usage: UsagePart | None = None


class Chunk(msgspec.Struct):
    """One event of the stream, or a whole answer; ``error`` may come in mid-stream."""

    choices: list[ChoicePart] | None = None
    usage: UsagePart | None = None
    error: Any = None


def body(model: str, prompt: ModelRequest, dialect: Dialect, answer_tokens: int | None = None) -> bytes:
    """The request body. Constant parts come first and messages are only appended, so that a service finds the beginning
    of each request in its cache."""
    request: dict[str, Any] = {"model": model, "stream": True}
    if "stream_options" not in dialect.without:
        request["stream_options"] = {"include_usage": True}
    if answer_tokens is not None:
        older = "max_completion_tokens" in dialect.without
        request["max_tokens" if older else "max_completion_tokens"] = answer_tokens
    if prompt.tools:
        request["tools"] = prompt.tools
    messages = alternated(prompt.messages) if dialect.alternating else prompt.messages
    request["messages"] = [spelled(message, dialect) for message in messages]
    return msgspec.json.encode(request)


def spelled(message: Message, dialect: Dialect) -> dict[str, Any]:
    """One message in the API's format."""
    match message:
        case ToolMessage(call_id=call_id, content=content):
            return {"role": "tool", "tool_call_id": call_id, "content": content}
        case AssistantMessage(content=content, calls=calls, reasoning=reasoning):
            told: dict[str, Any] = {"role": "assistant", "content": content}
            if reasoning and dialect.reasoning != "never":
                told["reasoning_content"] = reasoning
            elif calls and dialect.reasoning == "always":
                told["reasoning_content"] = NO_REASONING
            if calls:
                told["tool_calls"] = [_spelled_call(call, dialect) for call in calls]
            return told
        case _:
            return {"role": message.__struct_config__.tag, "content": message.content}


def _spelled_call(call: ToolCall, dialect: Dialect) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    told: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
    if call.extra and "extra_content" not in dialect.without:
        told["extra_content"] = msgspec.Raw(call.extra.encode())
    return told


class _Building:
    """A call that has arrived in part."""

    def __init__(self, index: int | None, call_id: str) -> None:
        self.index = index
        self.id = call_id
        self.name = ""
        self.extra = ""
        self.arguments: list[str] = []


class Assembler:
    """Assembles one answer from its chunks; ``tools`` are those that the model was offered."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.finish = ""
        self.over = False
        self._tools = tools
        self._refusal: list[str] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Building] = []
        self._usage = UsagePart()

    @property
    def pieces(self) -> int:
        """The number of pieces of text, plus one for the reasoning if there is any."""
        return len(self._text) + bool(self._reasoning)

    @property
    def text(self) -> str:
        """The text so far, as people may see it."""
        said = said_so_far("".join(self._text))
        return before_calls(said) if self._tools else said

    def feed(self, data: str | bytes) -> None:
        """Add a chunk, or the end marker. Raises ModelError for an error in its place, and for anything that is not a
        chunk."""
        if self.over or (isinstance(data, str) and data.strip() == END):
            self.over, self.finish = True, self.finish or "stop"
            return
        try:
            chunk = msgspec.convert(parse_message(data), Chunk, strict=False)
        except (UnreadableError, msgspec.ValidationError):
            raise ModelError(
                "unreachable", "the model service sent no chat completion: check native.baseUrl"
            ) from None
        if chunk.error:
            raise broken_off(chunk.error)
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or [])[:1]:
            self._take(choice)

    def reply(self) -> ModelReply:
        """The answer. Raises ModelError for one that the service withheld."""
        said = self._said()
        if self.finish == "content_filter" and not said.content:
            raise ModelError(
                "refused", "the model service withheld the answer (content_filter): rephrase the message"
            )
        calls = said.calls
        cut = self.finish == "length"
        if cut and said == AssistantMessage():
            raise ModelError("too_long", "the conversation left the model no room for an answer")
        lost = bool(cut and calls and not _is_json(calls[-1].arguments))
        if lost:
            # The model did not mean to write half a file.
            calls = calls[:-1]
        said = AssistantMessage(said.content, calls, said.reasoning)
        return ModelReply(said, tokens_of(self._usage), cut=cut, lost_call=lost)

    def _said(self) -> AssistantMessage:
        """All of it, in whatever form the service sent its parts."""
        text, thought = parted("".join(self._text))
        calls = tuple(
            ToolCall(each.id, each.name, "".join(each.arguments) or "{}", each.extra) for each in self._calls
        )
        if not calls:
            text, calls = written_calls(text, self._tools)
        reasoning = "\n\n".join(part for part in ("".join(self._reasoning), thought) if part)
        return AssistantMessage(text or "".join(self._refusal), calls, reasoning)

    def _take(self, choice: ChoicePart) -> None:
        self._usage = choice.usage or self._usage
        self.finish = choice.finish_reason or self.finish
        said = choice.delta or choice.message
        if said is None:
            return
        text, thought = words_of(said.content)
        if text:
            self._text.append(text)
        if said.refusal:
            self._refusal.append(said.refusal)
        if reasoning := said.reasoning_content or words_of(said.reasoning)[0] or thought:
            self._reasoning.append(reasoning)
        for part in said.tool_calls or []:
            building, function = self._building(part), part.function or FunctionPart()
            building.name = building.name or function.name or ""
            if part.extra_content and not building.extra:
                building.extra = msgspec.json.encode(part.extra_content).decode()
            if told := function.arguments:
                building.arguments.append(
                    told if isinstance(told, str) else msgspec.json.encode(told).decode()
                )

    def _building(self, part: CallPart) -> _Building:
        """The call that a part belongs to; a different id starts a new call, whatever the index is."""
        same = [each for each in self._calls if part.index is None or each.index == part.index]
        found = same[-1] if same else None
        if found is None or (part.id and found.id and part.id != found.id):
            found = _Building(part.index, part.id or "")
            self._calls.append(found)
        found.id = found.id or part.id or ""
        return found


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def tokens_of(usage: UsagePart) -> TokenCount:
    """What an answer has used, in any of the formats that services use."""
    details = usage.prompt_tokens_details
    cached = usage.cached_tokens or (details.cached_tokens if details else None)
    return TokenCount(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)


def broken_off(error: Any) -> ModelError:
    """What an error means that came in place of an answer, or in the middle of one."""
    code, said, words = error_words(error)
    status = int(code) if code.isdigit() and len(code) == 3 else 500
    found = refusal(status, code, said, None, words)
    return (
        found
        if found.trouble != "overloaded"
        else ModelError("overloaded", f"the model service broke off: {said}")
    )


def error_words(error: Any) -> tuple[str, str, str]:
    """The code (or type) of an error, its message as one line, and its whole text; "" for what is missing."""
    words = msgspec.json.encode(error).decode()[:ERROR_CHARS]
    if not isinstance(error, dict):
        return "", one_line(str(error), LINE_CHARS), words
    code = str(error.get("code") or error.get("type") or "")
    return code, one_line(str(error.get("message") or code or "no reason given"), LINE_CHARS), words
