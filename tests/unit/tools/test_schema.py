"""From an argument struct to a JSON schema, and from what a model wrote to the struct."""

from __future__ import annotations

from typing import Annotated

import pytest
from msgspec import Meta

from codebutler_worker.tools.reading import LIST_FILES, READ_FILES, ReadFilesArguments, number_lines
from codebutler_worker.tools.repair import definition, parse_arguments, schema_of
from codebutler_worker.tools.tool import Arguments, ToolError


class Example(Arguments, frozen=True):
    """Not for models."""

    path: Annotated[str, Meta(description="Where.")]
    count: Annotated[int, Meta(ge=1, le=9)] = 3


def test_a_struct_is_a_schema_without_references_or_names_of_ours() -> None:
    assert schema_of(Example) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_a_definition_names_the_tool_and_says_what_it_is_for() -> None:
    made = definition(READ_FILES)
    assert made["type"] == "function"
    assert made["function"]["name"] == "read_files"
    assert made["function"]["description"]
    assert made["function"]["parameters"]["required"] == ["paths"]


def test_arguments_are_read_also_with_quoted_numbers() -> None:
    args = parse_arguments(READ_FILES, '{"paths": ["a"], "lines": "5"}')[0]
    assert args == ReadFilesArguments(paths=["a"], lines=5)
    assert parse_arguments(LIST_FILES, "")[0] == parse_arguments(LIST_FILES, "{}")[0]


@pytest.mark.parametrize(
    "text", ["{", '{"paths": {"a": 1}}', '{"paths": []}', "[]", '{"paths": ["a', "\ud800", "[" * 10**6]
)
def test_other_arguments_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ToolError, match=r"^read_files: [^\n]+$"):
        parse_arguments(READ_FILES, text)


def test_lines_are_numbered_and_a_part_says_of_what() -> None:
    assert number_lines("one\ntwo\n", 1, 10, 1000) == ("1\tone\n2\ttwo", False)
    text, cut = number_lines("one\ntwo\nthree\n", 2, 1, 1000)
    assert (text, cut) == ("2\ttwo\n(lines 2 to 2 of 3)", True)
    assert number_lines("a\u2028b\r\n\n", 1, 9, 1000) == ("1\ta\u2028b\n2\t", False)
    assert number_lines("", 1, 9, 1000) == ("(the file is empty)", False)
    assert number_lines("one", 5, 1, 1000) == ("(the file has 1 lines)", False)
