"""What the fork server made before it forks is not counted, where Python can do that."""

from __future__ import annotations

import subprocess
import sys

from codebutler_worker.warmup import TRIED, can_be_immortal

LIVES = """
import gc, sys
from codebutler_worker.warmup import can_be_immortal, make_immortal

class Kept:
    def name(self):
        return [*map(str, range(2000, 2010))]

kept = {"a": (Kept(), "a text of several words"), "b": [b"bytes", 3.5, 10**40]}
made = make_immortal()
every = [kept, kept["a"], *kept["a"], *kept["b"], Kept, Kept.name, Kept.name.__code__]
counts = {sys.getrefcount(each) == sys.getrefcount(None) for each in every}
gc.freeze()
for _ in range(3):
    # They work as before, and what is made from now on is counted and freed.
    kept["b"] = [*kept["b"], kept["a"][0].name()]
    text = kept["a"][1] + "!"
    gc.collect()
new = object()
print(can_be_immortal(), made > 1_000, counts, sys.getrefcount(new) < 5, len(kept["b"]), text)
"""


def test_every_object_is_immortal_and_works_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", LIVES], capture_output=True, text=True, check=True)
    can = can_be_immortal()
    assert done.stdout.strip() == f"{can} {can} {{{can}}} True 6 a text of several words!"
    assert done.stderr == ""


def test_the_fork_server_makes_its_objects_immortal() -> None:
    code = (
        "import sys, codebutler_worker.preload as done; print(sys.getrefcount(done) == sys.getrefcount(None))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(can_be_immortal())


def test_it_can_be_done_in_every_version_that_it_was_tried_with() -> None:
    assert can_be_immortal() == (sys.version_info[:2] in TRIED)
