"""Between a tool's argument struct and what a model reads and writes: JSON schema one way, JSON the other. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from codebutler_worker.tools.aliases import WEIGHTY
from codebutler_worker.tools.port import Arguments, Tool, ToolError
from codebutler_worker.tools.repair import fitted, object_in, simplified

MAX_ARGUMENTS_CHARS = 2**20
MAX_KEYS, MAX_KEY_CHARS = 10, 40


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
    return understood(tool, arguments)[0]


def understood(tool: Tool, arguments: str) -> tuple[Arguments, str]:
    """The same, and a note for the model about what was ignored ("" = nothing). Raises ToolError."""
    if len(arguments) > MAX_ARGUMENTS_CHARS:
        raise ToolError(f"{tool.name}: the arguments are too long: split the work")
    schema = schema_of(tool.arguments)
    takes = f"{tool.name} takes {', '.join(schema['properties'])}"
    try:
        found, ignored = fitted(object_in(arguments), schema)
        # Some models quote booleans.
        args = msgspec.convert(found, tool.arguments, strict=False)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise ToolError(f"{tool.name}: {error}. {takes}.") from None
    for key in ignored:
        if simplified(key) in WEIGHTY.get(tool.name, ()):
            raise ToolError(f"{tool.name}: it has no `{key}`, and would do something else without. {takes}.")
    names = ", ".join(f"`{key[:MAX_KEY_CHARS]}`" for key in ignored[:MAX_KEYS])
    return args, f"(Ignored: {names}. {takes}.)" if names else ""
