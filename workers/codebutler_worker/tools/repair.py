"""Translates a tool's arguments to and from JSON: the schema that a model reads, and the calls that it writes. Pure.

Repairs only what has a single meaning; never invents what is missing.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from codebutler_worker.tools.lenient_json import UnreadableError, parse_lenient
from codebutler_worker.tools.tool import Arguments, Tool, ToolError

# Names that models use because other agents' tools use them, and our name for each.
#
# Names are compared in lower case, letters and digits only: ``filePath`` and ``file_path`` are ``filepath``.


def _table(words: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({name: frozenset(others.split()) for name, others in words.items()})


_FILE = "file filepath filename targetfile relativepath relativeworkspacepath absolutepath notebookpath"

FIELDS = _table(
    {
        "path": f"{_FILE} paths files directory dir folder directorypath dirpath",
        "paths": f"{_FILE} path files filepaths filenames",
        "old": "oldstring oldstr oldtext oldcode search searchtext find original target before",
        "new": "newstring newstr newtext newcode replace replacement replacewith updated after",
        "all": "replaceall allowmultiple global everyoccurrence",
        "content": "contents text filetext filecontent filecontents body data code",
        "command": "cmd commands script shellcommand bashcommand commandline",
        "cwd": "workdir workingdirectory workingdir directory dir",
        "type": "input stdin keys sendkeys",
        "wait_s": "timeout timeouts timeoutms timeoutsec timeoutseconds wait waitseconds yieldtimems",
        "limit_s": "timeout timeouts timeoutms timeoutsec timeoutseconds wait waits waitseconds",
        "pattern": "query search searchterm searchstring searchpattern text term keyword",
        "regex": "isregex isregexp useregex regexp",
        "any_case": "i ignorecase caseinsensitive insensitive",
        "glob": "include includes includepattern filepattern fileglob",
        "most": "limit max maxresults maxcount headlimit resultlimit numresults count",
        "first_line": "offset start startline firstline fromline linestart line",
        "lines": "limit count numlines linecount maxlines numberoflines",
        "text": "goal subgoal title description content step task name",
        "number": "id index step subgoal subgoalid stepnumber",
        "state": "status",
        "question": "text prompt message query",
        "options": "choices answers suggestions",
        "answer": "text message result summary finalanswer response content output",
        "needs_user": "needsinput needuser blocked",
        "url": "uri link address href",
        "query": "q search searchquery searchterm text",
        "key": "name id title",
        "value": "text content fact note",
        "plan": "text content markdown",
        "name": "skill skillname",
    }
)

EXPLANATORY = frozenset(
    ["description", "explanation", "reason", "purpose", "thought", "comment", "note", "title", "name", "id"]
)
"""Keys that models add to any call; they stand for an argument only if that one is required."""

VALUES = _table(
    {
        "done": "completed complete finished achieved success",
        "in_progress": "started active doing working begun running",
        "pending": "todo open notstarted waiting",
        "CTRL_C": "ctrlc sigint int interrupt c",
        "KILL": "sigkill kill terminate sigterm stop",
    }
)

TOOLS = _table(
    {
        "list_files": "ls listdir listdirectory listfile glob findfiles filesearch",
        "code_search": "grep rg ripgrep search searchfiles searchcode codebasesearch grepsearch searchfilecontent",
        "read_files": "read readfile readmanyfiles view viewfile openfile cat",
        "edit_file": "edit strreplace replace searchreplace replaceinfile editfiles applydiff",
        "write_file": "write createfile writetofile savefile create overwritefile",
        "run_terminal_command": "bash shell sh terminal exec execute runcommand executecommand runshellcommand "
        "runinterminal execcommand",
        "bash": "runterminalcommand shell sh terminal exec execute runcommand executecommand runshellcommand",
        "web_fetch": "fetch webfetch fetchurl openurl readurl",
        "web_search": "websearch searchweb",
        "ask_user": "ask askuserquestion askquestion askfollowupquestion",
        "end_turn": "finish done complete attemptcompletion taskcomplete submit finalanswer",
    }
)

SIGNIFICANT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "bash": frozenset(FIELDS["cwd"] | {"cwd"}),
        "write_file": frozenset({"append", "mode", "insertline", "startline", "endline"}),
    }
)
"""By tool: arguments that it lacks, and whose loss would change what the call does."""

_WRAPPERS = frozenset({"arguments", "args", "parameters", "params", "input", "toolinput", "properties"})
_NAME_KEYS = frozenset({"name", "tool", "toolname", "function", "type", "id"})
_LABELS = ("path", "file_path", "label", "text", "name", "value", "content")
_PREFIX = re.compile(r"^(?:functions?|tools?|default_api|multi_tool_use)[./]|:\d+$")
_FIGURE = re.compile(r"(-?\d{1,15}(?:\.\d{1,15})?) ?(?:s|sec|seconds|lines?)?")
_SHELLS = (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"], ["/bin/bash", "-lc"], ["/bin/sh", "-c"])


def find_tool(name: str, tools: Collection[str]) -> str | None:
    """The tool in ``tools`` that ``name`` means; None if there is none, or more than one candidate."""
    if name in tools:
        return name
    simplified = simplify(_PREFIX.sub("", name.strip()))
    exact = [tool for tool in tools if simplify(tool) == simplified]
    candidates = exact or [tool for tool in tools if simplified in TOOLS.get(tool, ())]
    return candidates[0] if len(candidates) == 1 else None


def parse_object(text: str) -> dict[str, Any]:
    """The object in the text. Raises UnreadableError."""
    found = parse_lenient(text.strip() or "{}")
    if isinstance(found, str):
        # Some models encode the JSON as a JSON string again.
        found = parse_lenient(found.strip() or "{}")
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise UnreadableError("not a JSON object")
    return {str(key): value for key, value in found.items()}


def as_json(text: str) -> str:
    """Arguments as JSON that any service can read; what cannot be repaired becomes a string."""
    try:
        if isinstance(msgspec.json.decode(text), dict):
            return text
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        found = parse_object(text)
    except (UnreadableError, RecursionError):
        found = {"unreadable": text.encode(errors="replace").decode()}
    return msgspec.json.encode(found).decode()


def fit_arguments(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments with their proper names and types, and the keys that match no argument."""
    known: Mapping[str, Any] = schema["properties"]
    required: Collection[str] = schema.get("required", ())
    arguments = _unwrap(arguments, known)
    found = {key: value for key, value in arguments.items() if key in known}
    ignored = []
    for key, value in arguments.items():
        if key in known:
            continue
        free = required if simplify(key) in EXPLANATORY else known
        field = _field_for(key, [name for name in free if found.get(name) is None])
        if field is None:
            ignored.append(key)
        else:
            found[field] = value
    converted = {key: _convert(value, known[key], key) for key, value in found.items() if value is not None}
    return converted, tuple(ignored)


def _unwrap(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inner arguments, if the model wrote the whole call in place of the arguments."""
    if set(arguments) & set(known) - {"name", "type"}:
        return arguments
    inner = [value for key, value in arguments.items() if simplify(key) in _WRAPPERS]
    others = [key for key in arguments if simplify(key) not in _WRAPPERS | _NAME_KEYS]
    if len(inner) != 1 or others:
        return arguments
    if isinstance(inner[0], str):
        try:
            return parse_object(inner[0])
        except UnreadableError:
            return arguments
    return inner[0] if isinstance(inner[0], dict) else arguments


def _field_for(key: str, free: Collection[str]) -> str | None:
    simplified = simplify(key)
    same = [field for field in free if simplify(field) == simplified]
    candidates = same or [field for field in free if simplified in FIELDS.get(field, ())]
    return candidates[0] if candidates else None


def _convert(value: Any, schema: Mapping[str, Any], field: str) -> Any:
    if "enum" in schema:
        return _convert_choice(value, schema["enum"])
    match schema.get("type"):
        case "array":
            return _convert_list(value)
        case "integer":
            return _convert_integer(value, schema)
        case "string":
            return _convert_text(value, field)
    return value


def _convert_choice(value: Any, allowed: Collection[Any]) -> Any:
    if not isinstance(value, str) or value in allowed:
        return value
    simplified = simplify(value)
    texts = [one for one in allowed if isinstance(one, str)]
    candidates = [one for one in texts if simplify(one) == simplified or simplified in VALUES.get(one, ())]
    return candidates[0] if len(candidates) == 1 else value


def _convert_list(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            read = parse_lenient(value)
        except UnreadableError:
            read = value
        value = read if isinstance(read, list) else value
    if isinstance(value, list):
        return [_text_of_object(one) for one in value]
    return [_text_of_object(value)]


def _text_of_object(value: Any) -> Any:
    """The text in an object that was written in place of a text."""
    if isinstance(value, dict):
        return next((value[label] for label in _LABELS if isinstance(value.get(label), str)), value)
    return value


def _convert_integer(value: Any, schema: Mapping[str, Any]) -> Any:
    """A number clamped to its limits."""
    if isinstance(value, str) and (figure := _FIGURE.fullmatch(value.strip())):
        value = float(figure[1])
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    return max(schema.get("minimum", -math.inf), min(schema.get("maximum", math.inf), int(value)))


def _convert_text(value: Any, field: str) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    if field == "command" and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value[2] if value[:2] in _SHELLS and len(value) == 3 else shlex.join(value)
    if field == "content" and isinstance(value, dict | list):
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    return value


def simplify(name: str) -> str:
    """A name for comparison: lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


MAX_ARGUMENTS_CHARS = 2**20
MAX_KEYS, MAX_KEY_CHARS = 10, 40


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, without references and titles."""
    (found,), components = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema = dict(components[found["$ref"]]) if "$ref" in found else dict(found)
    schema.pop("title", None)
    schema.pop("description", None)  # the struct's docstring is not for models
    return schema


def definition(tool: Tool) -> dict[str, Any]:
    """The tool's definition for the chat completions API."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": schema_of(tool.arguments),
        },
    }


def parse_arguments(tool: Tool, arguments: str) -> tuple[Arguments, str]:
    """Parse what the model wrote as the tool's arguments; also returns a note for it about what was ignored ("" =
    nothing).

    Raises ToolError, which says what was expected.
    """
    if len(arguments) > MAX_ARGUMENTS_CHARS:
        raise ToolError(f"{tool.name}: the arguments are too long: split the work")
    schema = schema_of(tool.arguments)
    accepted = f"{tool.name} takes {', '.join(schema['properties'])}"
    try:
        found, ignored = fit_arguments(parse_object(arguments), schema)
        # Some models quote booleans.
        args = msgspec.convert(found, tool.arguments, strict=False)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise ToolError(f"{tool.name}: {error}. {accepted}.") from None
    for key in ignored:
        if simplify(key) in SIGNIFICANT.get(tool.name, ()):
            raise ToolError(
                f"{tool.name}: it has no `{key}`, and ignoring that would change what it does. {accepted}."
            )
    names = ", ".join(f"`{key[:MAX_KEY_CHARS]}`" for key in ignored[:MAX_KEYS])
    return args, f"(Ignored: {names}. {accepted}.)" if names else ""
