"""What of an event of the chat stands in the audit log."""

from __future__ import annotations

import hashlib

from codebutler.domain.model import NoRequest, Prompt
from codebutler.observe.chain import TEXT_CHARS, AuditAct, act_of, shortened
from tests.events import clicked, posted

PRESS = clicked(
    channel="C1",
    user="U1",
    message="5.4",
    action_id="codebutler.deny",
    value="r1",
    press="V1",
    thread="5.1",
    words="too dear",
)


def test_a_reason_from_a_form_is_kept() -> None:
    act = act_of(PRESS, NoRequest(), "allowed")
    assert (act.kind, act.user, act.channel) == ("button codebutler.deny", "U1", "C1")
    assert (act.thread, act.text) == ("5.1", "too dear")


def test_a_message_is_kept_with_its_thread_or_itself() -> None:
    act = act_of(posted(channel="C1", ref="1.1", user="U1", text="hello"), Prompt(text="hello"), "allowed")
    assert (act.kind, act.thread, act.text) == ("prompt", "1.1", "hello")


def test_of_what_was_refused_the_beginning_its_length_and_its_digest_are_kept() -> None:
    text = "open sesame " * 4000
    act = shortened(
        AuditAct(kind="command " + "x" * 9000, user="U1", channel="C1", text=text, decision="refused")
    )
    assert act.text.startswith(text[:TEXT_CHARS])
    assert f"{len(text)} characters, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}" in act.text
    assert len(act.text) + len(act.kind) < 800
    assert (
        shortened(AuditAct(kind="run", user="U1", channel="C1", text="ls", decision="refused")).text == "ls"
    )
