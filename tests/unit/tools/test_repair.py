"""What models write as arguments, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.schema import Config
from codebutler_worker.agents.native.backend import tools
from codebutler_worker.tools.lenient_json import UnreadableError, parse_lenient
from codebutler_worker.tools.repair import as_json, find_tool, parse_arguments, parse_object, schema_of
from codebutler_worker.tools.running import bash
from codebutler_worker.tools.talking import PROPOSE_PLAN
from codebutler_worker.tools.tool import Tool, ToolError

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (*tools(Config()), bash(("cat", "ls")), PROPOSE_PLAN)}


def taken(name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    """What the tool gets, without what it gets anyway."""
    args = parse_arguments(TOOLS[name], arguments if isinstance(arguments, str) else json.dumps(arguments))[0]
    usual = {key: each.get("default") for key, each in schema_of(type(args))["properties"].items()}
    found = {key: getattr(args, key) for key in usual}
    return {key: value for key, value in found.items() if value != usual[key]}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": "b"}\n```', {"a": "b"}),
        ('``` {"a": "b"}', {"a": "b"}),
        ("{'a': 'b', 'c': True, 'd': None}", {"a": "b", "c": True, "d": None}),
        ("{“a”: “b's”, ‘c’: ‘d’}", {"a": "b's", "c": "d"}),
        ('{"a": [1, 2,], "b": {"c": "d",},}', {"a": [1, 2], "b": {"c": "d"}}),
        ('{a: "b", c_d: false}', {"a": "b", "c_d": False}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"a": "\\d+ \\" \\u00fc \\ud83d\\ude00 \\n"', {"a": '\\d+ " ü 😀 \n'}),
        ('{"a": ["b", {"c": "d"', {"a": ["b", {"c": "d"}]}),
        ('{"a": "b"}}', {"a": "b"}),
        ('{"a": -1.5e3, "b": 07}', None),
        ('{"a": 12', None),  # 12 or 120?
        ('{"a": "b', None),
        ('{"a": "b",', None),
        ('{"a": "b", "c"', None),
        ('{"a": "b", "c":', None),
        ('{"a": tru', None),
        ('{"a": "b"}{"a": "c"}', None),
        ("{'a': 'don't'}", None),
        ('{"a" "b"}', None),
        ("[" * 100, None),
        ('{"a": NaN}', None),
        ("rm -rf", None),
    ],
)
def test_json_as_models_write_it(written: str, meant: Any) -> None:
    if meant is None:
        with pytest.raises(UnreadableError, match=r"^[^\n]+$"):
            parse_lenient(written)
    else:
        assert parse_lenient(written) == meant


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_json_is_what_it_is_also_with_a_comma_too_many_or_in_a_fence(value: dict[str, Any]) -> None:
    strict = json.dumps(value)
    assert parse_lenient(strict) == value
    assert parse_lenient(f"```json\n{json.dumps(value, indent=1)}\n```") == value
    if value:
        assert parse_lenient(f"{strict[:-1]},}}") == value


@given(st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=4), st.data())
def test_what_is_cut_off_is_refused_or_holds_nothing_that_was_not_there(
    value: dict[str, Any], data: st.DataObject
) -> None:
    whole = json.dumps(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = parse_lenient(cut)
    except UnreadableError:
        return
    assert isinstance(found, dict)
    assert within(found, value)


def within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and within(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(
            within(one, other) for one, other in zip(part, whole, strict=False)
        )
    return bool(part == whole)


@given(st.text(max_size=60))
def test_whatever_is_written_any_service_can_read_it_again(text: str) -> None:
    assert isinstance(json.loads(as_json(text)), dict)


@pytest.mark.parametrize(
    ("tool", "written", "meant"),
    [
        ("read_files", {"path": "a"}, {"paths": ["a"]}),
        (
            "read_files",
            {"file_path": "a", "offset": 3, "limit": 9},
            {"paths": ["a"], "first_line": 3, "lines": 9},
        ),
        ("read_files", {"filePath": ["a", "b"]}, {"paths": ["a", "b"]}),
        ("read_files", {"files": [{"path": "a"}, {"path": "b"}]}, {"paths": ["a", "b"]}),
        ("read_files", {"paths": '["a", "b"]'}, {"paths": ["a", "b"]}),
        ("read_files", {"paths": ["a"], "first_line": 0, "lines": 10**6}, {"paths": ["a"]}),
        (
            "read_files",
            {"paths": ["a"], "lines": "5", "first_line": 7.0},
            {"paths": ["a"], "lines": 5, "first_line": 7},
        ),
        ("read_files", {"paths": ["a"], "lines": None}, {"paths": ["a"]}),
        ("read_files", {"arguments": {"paths": ["a"]}}, {"paths": ["a"]}),
        ("read_files", {"name": "read_files", "parameters": '{"path": "a"}'}, {"paths": ["a"]}),
        ("read_files", '"{\\"paths\\": [\\"a\\"]}"', {"paths": ["a"]}),
        ("read_files", '[{"paths": ["a"]}]', {"paths": ["a"]}),
        (
            "edit_file",
            {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": "true"},
            {"path": "a", "old": "b", "new": "c", "all": True},
        ),
        ("edit_file", {"path": "a", "old_str": "b", "new_str": ""}, {"path": "a", "old": "b", "new": ""}),
        (
            "write_file",
            {"filename": "a.json", "content": {"b": [1]}},
            {"path": "a.json", "content": '{\n  "b": [\n    1\n  ]\n}\n'},
        ),
        ("write_file", {"path": "a", "file_text": "x"}, {"path": "a", "content": "x"}),
        (
            "run_terminal_command",
            {"cmd": "ls", "timeout": 120000, "description": "look"},
            {"command": "ls", "wait_s": 300},
        ),
        ("run_terminal_command", {"command": ["bash", "-lc", "ls | wc"]}, {"command": "ls | wc"}),
        (
            "run_terminal_command",
            {"command": ["ls", "a b"], "workdir": "src"},
            {"command": "ls 'a b'", "cwd": "src"},
        ),
        ("run_terminal_command", {"signal": "SIGINT"}, {"signal": "CTRL_C"}),
        ("run_terminal_command", {"input": "yes\n"}, {"type": "yes\n"}),
        ("bash", {"command": ["cat", "a b"]}, {"command": "cat 'a b'"}),
        (
            "code_search",
            {"query": "x", "-i": True, "include": "*.py"},
            {"pattern": "x", "any_case": True, "glob": "*.py"},
        ),
        ("list_files", {"directory": "src", "recursive": True}, {"path": "src"}),
        ("add_subgoal", {"title": "do it"}, {"text": "do it"}),
        ("update_subgoal", {"id": "1", "status": "In Progress"}, {"number": 1, "state": "in_progress"}),
        (
            "update_subgoal",
            {"number": 1, "state": "done", "description": "why it is done"},
            {"number": 1, "state": "done"},
        ),
        ("update_subgoal", {"number": 1, "state": "completed"}, {"number": 1, "state": "done"}),
        (
            "ask_user",
            {"question": "q", "options": [{"label": "a"}, {"label": "b"}]},
            {"question": "q", "options": ("a", "b")},
        ),
        ("end_turn", {"result": "done"}, {"answer": "done"}),
        ("propose_plan", {"content": "1. look"}, {"plan": "1. look"}),
    ],
)
def test_other_agents_words_are_understood(
    tool: str, written: dict[str, Any] | str, meant: dict[str, Any]
) -> None:
    assert taken(tool, written) == meant


@pytest.mark.parametrize(
    ("tool", "written"),
    [
        ("read_files", {}),
        ("read_files", {"paths": []}),
        ("read_files", {"paths": [3]}),
        ("edit_file", {"path": "a", "new": "b"}),
        ("write_file", {"path": "a"}),
        ("write_file", {"path": "a", "content": "b", "append": True}),
        ("bash", {"command": "cat a", "cwd": "src"}),
        ("update_subgoal", {"number": "second", "state": "done"}),
        ("update_subgoal", {"number": 1, "state": "blue"}),
    ],
)
def test_what_is_missing_or_would_be_something_else_is_refused(tool: str, written: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match=rf"^{tool}: [^\n]+ takes [^\n]+$"):
        parse_arguments(TOOLS[tool], json.dumps(written))


def test_what_is_ignored_is_said() -> None:
    _, note = parse_arguments(TOOLS["edit_file"], '{"path": "a", "old": "b", "new": "c", "al": true}')
    assert note == "(Ignored: `al`. edit_file takes path, old, new, all.)"
    assert parse_arguments(TOOLS["edit_file"], '{"file": "a", "old": "b", "new": "c"}')[1] == ""


def test_an_argument_of_its_own_name_comes_before_one_that_is_only_like_it() -> None:
    written = {"file_path": "b", "path": "a", "old": "x", "text": "?", "new": "y"}
    assert taken("edit_file", written) == {"path": "a", "old": "x", "new": "y"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("read_files", "read_files"),
        ("ReadFiles", "read_files"),
        ("functions.read_files:0", "read_files"),
        ("Read", "read_files"),
        ("str_replace", "edit_file"),
        ("Grep", "code_search"),
        ("bash", "run_terminal_command"),
        ("fly", None),
        ("", None),
    ],
)
def test_a_tool_is_known_by_the_names_that_others_have_for_it(said: str, meant: str | None) -> None:
    assert find_tool(said, [tool.name for tool in tools(Config())]) == meant


def test_an_own_name_is_never_taken_for_another() -> None:
    for name in TOOLS:
        assert find_tool(name, TOOLS) == name


@given(st.sampled_from(sorted(TOOLS)), st.dictionaries(st.text(max_size=12), VALUES, max_size=5))
def test_anything_is_understood_or_refused_in_one_line(name: str, written: dict[str, Any]) -> None:
    told = ""
    try:
        assert isinstance(parse_arguments(TOOLS[name], json.dumps(written))[0], TOOLS[name].arguments)
    except ToolError as error:
        told = str(error)
    assert "\n" not in told


@pytest.mark.parametrize(
    "written",
    [
        "```json {" + " " * 10**6 + "x",
        '{"paths": ["a"], "lines": "5' + " " * 10**6 + 'x"}',
        '{"paths": ["a"], "lines": "' + "9" * 10**6 + '"}',
        "{" * 10**6,
        "“" * 10**6,
    ],
)
def test_what_is_long_and_nothing_is_refused_and_not_pondered_over(written: str) -> None:
    with pytest.raises(ToolError):
        parse_arguments(TOOLS["read_files"], written)


def test_nothing_at_all_is_an_empty_object() -> None:
    assert parse_object("") == parse_object("{}") == parse_object('"{}"') == {}
