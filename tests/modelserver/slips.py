"""A model that knows what to do and slips, as real ones do, while it writes that down.

Its slips follow a number, its ``hand``, which grows with each call: a test meets all of them, and always the same ones.
What can still be understood is said once. What cannot (arguments that end in the middle, an edit of words that are not
there) is said right on reading what came of it. Looking at something is now and then done twice over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.modelserver.completions import CompletionsServer
from tests.modelserver.script import Call, Reply

Keys = dict[str, str]
Next = Callable[[dict[str, Any]], Reply]
"""What it means to say next, from what it is asked."""

KEYS: dict[str, tuple[Keys, ...]] = {
    "read_files": ({"paths": "path"}, {"paths": "file_path"}, {"paths": "filePaths"}),
    "edit_file": (
        {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"},
        {"path": "filePath", "old": "old_str", "new": "new_str"},
        {"path": "file", "old": "search", "new": "replace"},
    ),
    "write_file": (
        {"path": "file_path"},
        {"path": "filename", "content": "file_text"},
        {"content": "contents"},
    ),
    "run_terminal_command": (
        {"command": "cmd", "wait_s": "timeout"},
        {"signal": "Signal"},
        {"wait_s": "waitS"},
    ),
    "code_search": ({"pattern": "query"}, {"pattern": "search_term"}, {"pattern": "Pattern"}),
    "list_files": ({"path": "directory"}, {"path": "dir_path"}, {"path": "Path"}),
    "add_subgoal": ({"text": "title"}, {"text": "description"}, {"text": "goal"}),
    "update_subgoal": ({"number": "id", "state": "status"}, {"number": "index"}, {"state": "State"}),
    "web_fetch": ({"url": "uri"}, {"url": "URL"}, {"url": "link"}),
    "send_file": ({"path": "file_path"}, {"path": "filename"}, {"path": "file"}),
}
"""By tool: other agents' names for its arguments."""
TOOLS = {
    "read_files": "Read",
    "edit_file": "str_replace",
    "write_file": "create_file",
    "code_search": "Grep",
    "run_terminal_command": "functions.bash:0",
}
LOOKING = ("read_files", "code_search", "list_files")
TYPOGRAPHIC = str.maketrans({"'": "’", '"': "”", "-": "–"})


def other_keys(call: Call, hand: int) -> Call:
    """Arguments under other agents' names, one text in the place of a list of one."""
    names = KEYS[call.name][hand % 3]
    given = {names.get(key, key): value for key, value in call.input.items()}
    alone = {key: value[0] for key, value in given.items() if isinstance(value, list) and len(value) == 1}
    return replace(call, input={**given, **alone})


def more_keys(call: Call, hand: int) -> Call:
    """What no tool asked for, and numbers as texts or out of range."""
    more = {"description": "what it is for", "explanation": None, "background": hand % 2 == 0}
    given = {key: str(value) if type(value) is int else value for key, value in call.input.items()}
    lines = {"first_line": -1, "lines": 99_999} if call.name == "read_files" else {}
    return replace(call, input={**more, **given, **lines})


def copied_badly(call: Call, hand: int) -> Call:
    """What is to be replaced, not to the letter: too deep and with white space behind it, with typographic quotes, with
    line numbers, escaped twice."""
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: "".join(f"      {line}  \n" for line in text.split("\n")),
        lambda text: text.translate(TYPOGRAPHIC),
        lambda text: "\n".join(f"{at}\t{line}" for at, line in enumerate(text.split("\n"), 1)),
        lambda text: text.replace("\n", "\\n").replace('"', '\\"'),
    )
    way = ways[hand % 4]
    return replace(call, input={**call.input, "old": way(call.input["old"]), "new": way(call.input["new"])})


def badly_written(call: Call, hand: int) -> Call:
    """Arguments that are not the JSON they should be."""
    ways: tuple[Callable[[dict[str, Any]], str | dict[str, Any]], ...] = (
        lambda given: f"```json\n{json.dumps(given, indent=2)}\n```",
        lambda given: given,
        lambda given: f"{json.dumps(given)[:-1]},}}",
        lambda given: json.dumps(json.dumps(given)),
        repr,
        lambda given: json.dumps({**given, "note": "x"})[:-1],
        lambda given: json.dumps({"arguments": given}),
        lambda given: json.dumps(given).replace("\\n", "\n"),
    )
    return replace(call, written=ways[hand % len(ways)](call.input))


def other_tool(call: Call, _hand: int) -> Call:
    """Another agent's name for the tool."""
    return replace(call, name=TOOLS.get(call.name, call.name.replace("_", "-").upper()))


def lost(call: Call) -> Call:
    """Arguments that end in the middle: nobody can know the rest."""
    text = json.dumps(call.input)
    return replace(call, written=text[: text.rindex('"')])


def misremembered(call: Call) -> Call:
    """An edit of words that are not in the file, though nearly."""
    return replace(call, input={**call.input, "old": f"{call.input['old']} # to do"})


SLIPS = (copied_badly, other_keys, more_keys, badly_written, other_tool)


@dataclass
class SlippingServer(CompletionsServer):
    """``meant`` is what it means to say, answer by answer; ``read`` gives a file's text, of which a model copies whole
    lines. ``made`` counts the slips by their names."""

    meant: list[Next] = field(default_factory=list)
    read: Callable[[str], str] = lambda _path: ""
    hand: int = 0
    made: Counter[str] = field(default_factory=Counter)
    _pending: list[Reply] = field(default_factory=list)

    async def next(self, body: dict[str, Any], key: str) -> Reply:
        if not self._pending:
            self._pending = self._said(self.meant.pop(0)(body) if self.meant else Reply("(no more is meant)"))
        self.play(self._pending.pop(0))
        return await super().next(body, key)

    def _said(self, meant: Reply) -> list[Reply]:
        """One or two answers for one."""
        self.hand += 1
        if len(meant.calls) == 1 and self.hand % 2 == 0:
            call = meant.calls[0]
            slip = misremembered if "old" in call.input else lost
            self.made[slip.__name__] += 1
            return [replace(meant, calls=(slip(call),)), self._slipped(meant)]
        slipped = self._slipped(meant)
        if meant.calls and all(call.name in LOOKING for call in meant.calls):
            self.made["repeated"] += 1
            return [slipped, slipped]
        return [slipped]

    def _slipped(self, meant: Reply) -> Reply:
        return replace(meant, calls=tuple(self._written(call) for call in meant.calls))

    def _written(self, call: Call) -> Call:
        """The call with every slip whose turn it is."""
        self.hand += 1
        for at, slip in enumerate(SLIPS):
            if slip is copied_badly:
                lines = whole_lines(call, self.read)
                if lines is None:
                    continue
                call = lines
            elif slip is not badly_written and (self.hand + at) % 2:
                continue
            before, call = call, slip(call, self.hand)
            self.made[slip.__name__] += call != before
        return call


def whole_lines(call: Call, read: Callable[[str], str]) -> Call | None:
    """An edit of a part of a line as models make it, of the whole line and the one above; None for any other call."""
    if not {"old", "new"} <= call.input.keys():
        return None
    old, new, text = call.input["old"], call.input["new"], read(call.input["path"])
    if text.count(old) != 1:
        return None
    at = text.index(old)
    own = text.rfind("\n", 0, at) + 1
    begin = text.rfind("\n", 0, max(0, own - 1)) + 1
    end = text.find("\n", at + len(old))
    found = text[begin : end if end >= 0 else len(text)]
    return replace(call, input={**call.input, "old": found, "new": found.replace(old, new)})


def asked(body: dict[str, Any]) -> Sequence[str]:
    """What the tools said that it is asked with, oldest first."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]
