"""The way of a message: which calls are noted, and which of them are the way."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Callable
from pathlib import Path

from bench.walk import Span, Step, figures, told, way
from bench.walked import Recorder, Seen

SOURCE = """
class Door:
    def opened(self):
        return [each for each in map(lambda it: it, (1, 2))]

def enter():
    return Door().opened()
"""
ADDED = SOURCE.replace("Door().opened()", "added(Door().opened())") + "\ndef added(it):\n    return it\n"


def seen(file: str, name: str, *at_s: float) -> Seen:
    return Seen(file, name, 1, list(at_s))


def recorded(path: Path, text: str, run: Callable[[Callable[[], object]], object]) -> set[str]:
    file = path / "codebutler" / "hall" / "door.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    recorder = Recorder()
    recorder.install()
    try:
        run(runpy.run_path(str(file))["enter"])
    finally:
        recorder.remove()
    found = [each for each in recorder.seen() if each.file == "codebutler/hall/door.py"]
    assert len({each.name for each in found}) == len(found)
    return {each.name for each in found}


def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_every_function_is_noted_once_and_nothing_else(tmp_path: Path) -> None:
    functions = {"enter", "Door.opened", "Door.opened.<locals>.<lambda>"}
    assert recorded(tmp_path, SOURCE, lambda function: [function(), function()]) == functions
    assert recorded(tmp_path, ADDED, lambda function: function()) == {*functions, "added"}


def test_a_thread_is_listened_to(tmp_path: Path) -> None:
    assert "Door.opened" in recorded(tmp_path, SOURCE, in_a_thread)


def test_the_way_is_what_runs_for_the_message_and_never_at_rest() -> None:
    parent = [
        seen("codebutler/chat/slack/link.py", "take", 10.0, 10.4),
        seen("codebutler/domain/clock.py", "now", 10.1, 3.0),
        seen("codebutler/web/page.py", "show", 2.0),
        seen("codebutler/domain/model.py", "key", 10.2),
    ]
    worker = [
        seen("codebutler_worker/inbox.py", "add", 10.3),
        seen("codebutler/domain/model.py", "key", 10.35),
        seen("codebutler_worker/store/rows.py", "write", 10.1, 20.5),
    ]
    busy, idle = Span(10.0, 11.0), [Span(0.0, 5.0), Span(20.0, 25.0)]
    steps = way({"parent": parent, "worker": worker}, busy, idle)
    assert [(step.process, step.file, step.name) for step in steps] == [
        ("parent", "codebutler/chat/slack/link.py", "take"),
        ("parent", "codebutler/domain/model.py", "key"),
        ("worker", "codebutler_worker/inbox.py", "add"),
    ]
    assert [figure.measured for figure in figures(steps)] == [3, 3, 3]
    assert told(steps).splitlines()[:2] == ["parent codebutler/chat", "     1  chat/slack/link.py:1 take"]


def test_a_room_is_a_folder_at_the_top_or_a_loose_module() -> None:
    rooms = [
        Step(0.0, "worker", file, "it", 1).room
        for file in ("codebutler_worker/conversation/turn.py", "codebutler_worker/inbox.py")
    ]
    assert rooms == ["codebutler_worker/conversation", "codebutler_worker/inbox.py"]
