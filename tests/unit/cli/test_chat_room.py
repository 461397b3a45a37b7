"""What a chat at a terminal shows, and what it makes of what is typed."""

from __future__ import annotations

import pytest

from codebutler.cli.chatroom.markdown import InvalidChoice
from codebutler.cli.chatroom.state import ChatState, ShownLine
from codebutler.protocol.control import Choice, ControlReply, Ended, Heard, Past, Posted, Press, Said, Say

STOP = Choice(label="Stop", action_id="codebutler.stop", value="t1")
ALLOW = Choice(label="Allow", action_id="codebutler.allow", value="a1")
SESSION = Choice(label="Allow for this session", action_id="codebutler.allow_session", value="a1")
DENY = Choice(label="Deny", action_id="codebutler.deny", value="a1")
FOOTER = "_tokens: 3 in / 4 out • 2s • 1 turn_"


def show(room: ChatState, *replies: ControlReply) -> list[str]:
    return [line.text for reply in replies for line in room.on_reply(reply)]


def answer(name: str, question: str, at: int, *, box: bool = False) -> Choice:
    action = "codebutler.pick" if box else "codebutler.answer"
    return Choice(label=name, action_id=action, value=f"{question}:{at}", box=box)


def test_an_answer_that_was_told_while_it_came_is_not_told_again() -> None:
    room = ChatState()
    assert show(room, Heard(kind="tool", text="🔧 Bash: ls"), Heard(kind="text", text="Two  files.")) == [
        "🔧 Bash: ls",
        "Two  files.",
    ]
    assert room.on_reply(Said(text=f"Two files.\n\n{FOOTER}", ref="1.2")) == [
        ShownLine(FOOTER.strip("_"), "faint")
    ]
    # Of another turn, and the same words: nobody has heard them yet.
    assert show(room, Said(text=f"Two files.\n\n{FOOTER}", ref="1.3")) == ["Two files.", FOOTER.strip("_")]


def test_an_answer_that_came_otherwise_is_told_whole() -> None:
    room = ChatState()
    show(room, Heard(kind="text", text="I look."))
    assert show(room, Said(text=f"Done: `a_b`\n\n{FOOTER}", ref="1.2")) == ["Done: `a_b`", FOOTER.strip("_")]


def test_prose_is_shown_line_by_line_while_it_is_written() -> None:
    room = ChatState()
    assert show(room, Heard(kind="writing", text="One")) == []
    assert show(room, Heard(kind="writing", text="One\nTwo\nTh")) == ["One", "Two"]
    assert show(room, Heard(kind="writing", text="One\nTwo\nThree\n")) == ["Three"]
    assert show(room, Heard(kind="text", text="One\nTwo\nThree\nFour")) == ["Four"]
    # The model began anew.
    assert show(room, Heard(kind="writing", text="Ein\nZw"), Heard(kind="text", text="Un\nDeux")) == [
        "Ein",
        "Un",
        "Deux",
    ]


def test_of_an_edited_page_only_what_is_new_is_shown() -> None:
    room = ChatState()
    page = "```\none\n10 %\n```"
    assert show(room, Said(text="⏳ Running…", ref="1.2", choices=(STOP,))) == ["⏳ Running…"]
    assert room.is_busy
    assert show(room, Said(text=f"{page}\n⏳ Running…", ref="1.2", choices=(STOP,))) == ["one", "10 %"]
    assert show(room, Said(text="```\none\n20 %\nend\n```\n✅ exit code 0", ref="1.2")) == [
        "20 %",
        "end",
        "✅ exit code 0",
    ]
    assert not room.is_busy


def test_progress_is_told_until_something_better_is() -> None:
    room = ChatState()
    first = Said(text="🔧 claude is working · 0s", kind="progress", ref="1.2", choices=(STOP,))
    assert show(room, first) == ["🔧 claude is working"]
    later = Said(text="🔧 claude is working · 15s", kind="progress", ref="1.2", choices=(STOP,))
    assert show(room, later, Heard(kind="text", text="Aha.")) == ["Aha."]
    assert show(room, Said(text="💬 Aha. · 20s", kind="progress", ref="1.2", choices=(STOP,))) == []
    assert room.is_busy
    assert show(room, Said(text="✅ 20s · 1 tool", kind="progress", ref="1.2")) == []
    assert not room.is_busy


def test_a_plan_shows_what_has_changed() -> None:
    room = ChatState()
    assert show(room, Heard(kind="plan", text="▸ read\n· write")) == ["▸ read", "· write"]
    assert show(room, Heard(kind="plan", text="✓ read\n▸ write")) == ["✓ read", "▸ write"]
    assert show(room, Heard(kind="plan", text="✓ read\n✓ write")) == ["✓ write"]


def test_busy_until_everything_that_was_said_has_its_outcome() -> None:
    room = ChatState()
    assert room.interpret("one") == Say(text="one")
    assert room.interpret("two") == Say(text="two")
    show(room, Posted(channel="C1", ref="1.1", thread="1.1"), Ended(ref="1.1", outcome="done"))
    assert room.is_busy
    assert room.thread == "1.1"
    show(room, Ended(ref="", outcome="failed"))
    assert not room.is_busy


def test_a_card_is_decided_by_number_or_in_a_word() -> None:
    room = ChatState()
    card = Said(text="Leave?", kind="card", ref="1.5", choices=(ALLOW, SESSION, DENY))
    assert show(room, card) == [
        "Leave?",
        "  [1] Allow",
        "  [2] Allow for this session",
        "  [3] Deny",
        "Type a number, or your answer.",
    ]
    assert room.interpret("3") == Press(ref="1.5", action_id="codebutler.deny", value="a1")
    assert room.interpret("Yes.") == Press(ref="1.5", action_id="codebutler.allow", value="a1")
    assert room.interpret("no, because of that") == Say(text="no, because of that", seen="1.5")
    with pytest.raises(InvalidChoice, match="no choice 4: type 1 to 3"):
        room.interpret("4")
    with pytest.raises(InvalidChoice, match="only one"):
        room.interpret("1, 2")
    decided = Said(text="Leave?\n✅ Allowed by operator.", kind="card", ref="1.5")
    assert show(room, decided) == ["✅ Allowed by operator."]
    assert room.interpret("3") == Say(text="3", seen="1.5")


def test_a_number_decides_the_card_whose_choices_stand_last() -> None:
    room = ChatState()
    other = Choice(label="Allow", action_id="codebutler.allow", value="a2")
    show(room, Said(text="Touch?", kind="card", ref="1.5", choices=(ALLOW, DENY)))
    show(room, Said(text="Push?", kind="card", ref="1.6", choices=(other,)))
    assert room.interpret("1") == Press(ref="1.6", action_id="codebutler.allow", value="a2")
    assert show(room, Said(text="Push?\n✅ Allowed by ben.", kind="card", ref="1.6")) == [
        "✅ Allowed by ben.",
        "Still open:",
        "Touch?",
        "  [1] Allow",
        "  [2] Deny",
        "Type a number, or your answer.",
    ]
    assert room.interpret("1") == Press(ref="1.5", action_id="codebutler.allow", value="a1")


def test_the_end_of_an_earlier_card_asks_nothing_again() -> None:
    room = ChatState()
    other = Choice(label="Allow", action_id="codebutler.allow", value="a2")
    show(room, Said(text="Touch?", kind="card", ref="1.5", choices=(ALLOW,)))
    show(room, Said(text="Push?", kind="card", ref="1.6", choices=(other,)))
    assert show(room, Said(text="Touch?\n🚫 Denied.", kind="card", ref="1.5")) == ["🚫 Denied."]
    assert room.interpret("1") == Press(ref="1.6", action_id="codebutler.allow", value="a2")


def test_a_short_yes_is_not_for_several_requests() -> None:
    room = ChatState()
    other = Choice(label="Allow", action_id="codebutler.allow", value="a2")
    show(room, Said(text="Two", kind="card", ref="1.5", choices=(ALLOW, DENY, other)))
    for words in ("yes", "no", "y"):
        with pytest.raises(InvalidChoice, match="type a number"):
            room.interpret(words)


def test_boxes_are_ticked_by_their_numbers() -> None:
    room = ChatState()
    boxes = (answer("red", "q1", 0, box=True), answer("blue", "q1", 1, box=True))
    done = Choice(label="Done", action_id="codebutler.answer", value="q1:ticked")
    choices = (*boxes, done, answer("left", "q2", 0))
    shown = show(room, Said(text="Which?", kind="card", ref="1.5", choices=choices))
    assert shown[1:4] == ["  [1] red", "  [2] blue", "  [3] left"]
    assert room.interpret("1 2, 1") == Press(
        ref="1.5", action_id="codebutler.answer", value="q1:ticked", picked=("q1:0", "q1:1")
    )
    assert room.interpret("3") == Press(ref="1.5", action_id="codebutler.answer", value="q2:0")
    with pytest.raises(InvalidChoice, match="different questions"):
        room.interpret("1,3")


def test_the_past_says_who_said_it_and_is_cut() -> None:
    room = ChatState()
    told = (
        Past(who="operator", text="hello"),
        Past(who="U1", text="hi"),
        Past(who="", text="a\n" * 16 + "b"),
    )
    lines = [room.on_reply(past) for past in told]
    assert lines[0] == [ShownLine("you> hello", "faint")]
    assert lines[1] == [ShownLine("U1> hi", "faint")]
    assert [line.text for line in lines[2]] == ["a"] * 15 + ["… 2 more lines"]
