"""Between a tool's argument struct and what a model reads and writes: JSON schema one way, JSON the other. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from codebutler_worker.tools.port import Arguments, Tool, ToolError

MAX_ARGUMENTS_CHARS = 2**20


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, without references and titles of ours."""
    (found,), components = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema = dict(components[found["$ref"]]) if "$ref" in found else dict(found)
    schema.pop("title", None)
    schema.pop("description", None)  # the struct's docstring is not for models
    return schema


def definition(tool: Tool) -> dict[str, Any]:
    """The tool as the chat completions API wants it described."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": schema_of(tool.arguments),
        },
    }


def parse(tool: Tool, arguments: str) -> Arguments:
    """What the model wrote as the tool's arguments. Raises ToolError, with what was expected."""
    if len(arguments) > MAX_ARGUMENTS_CHARS:
        raise ToolError(f"{tool.name}: the arguments are too long: split the work")
    try:
        # Some models quote numbers and booleans.
        return msgspec.json.decode(arguments.strip() or "{}", type=tool.arguments, strict=False)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolError(f"{tool.name}: these arguments are not what it takes: {error}") from None
