"""Who tells and who hears need not know each other."""

from __future__ import annotations

from codebutler.platform.tasks import Observers


def test_everybody_who_was_added_is_told_in_order() -> None:
    heard: list[str] = []
    observers = Observers[str, int]()
    observers.tell("nobody hears this", 0)
    observers.add(lambda what, number: heard.append(f"first {what} {number}"))
    observers.add(lambda what, number: heard.append(f"second {what} {number}"))
    observers.tell("sign", 1)
    assert heard == ["first sign 1", "second sign 1"]
