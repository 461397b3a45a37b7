"""What a worker says is harmless by the time it leaves, whatever the worker did with it."""

from __future__ import annotations

import json

import msgspec
import pytest

from codebutler.chat.delivery.outgoing import addressed, harmless, named
from codebutler.model import Operation, Post, React, Update, Upload

PINGS = "<!channel> <@U0ANA> <!subteam^S1> @here @everyone &lt;!here&gt;"


@pytest.mark.parametrize(
    "operation",
    [
        Post(text=PINGS),
        Update(target_ts="1.1", text=PINGS),
        Post(text="x", blocks=({"type": "markdown", "text": PINGS},)),
        Post(text="x", blocks=({"type": "section", "text": {"type": "mrkdwn", "text": PINGS}},)),
        Update(target_ts="1.1", text="x", blocks=({"type": "context", "elements": [{"text": PINGS}]},)),
        Upload(filename="a.txt", content=b"x", title=PINGS, comment=PINGS),
    ],
)
def test_no_mention_of_a_workers_reaches_anybody(operation: Operation) -> None:
    said = json.loads(msgspec.json.encode(harmless(operation)))
    for ping in ("<!", "<@", "@here", "@everyone", "&lt;!"):
        assert ping not in json.dumps(said, ensure_ascii=False)


def test_a_mention_that_is_no_text_is_left_out() -> None:
    broadcast = {"type": "rich_text", "elements": [{"type": "broadcast", "range": "channel"}]}
    kept = {"type": "section", "text": {"type": "mrkdwn", "text": "hello"}}
    assert harmless(Post(text="x", blocks=(broadcast, kept))) == Post(text="x", blocks=(kept,))


@pytest.mark.parametrize(
    "operation",
    [
        Post(text="<https://example.com|a link> and *bold*", thread_ts="1.1"),
        Post(
            text="x",
            blocks=(
                {
                    "type": "actions",
                    "elements": [{"type": "button", "action_id": "codebutler.stop", "value": "a"}],
                },
            ),
        ),
        React(target_ts="1.1", name="eyes"),
        Upload(filename="answer.md", content=b"<!channel>"),
    ],
)
def test_all_else_stays_as_it_is(operation: Operation) -> None:
    assert harmless(operation) == operation


def test_only_the_one_whom_a_post_is_for_is_called() -> None:
    post = Post(text="done", blocks=({"type": "markdown", "text": "done"},), mention="U0ANA")
    called = addressed(harmless(post), ("U0ANA", "U0BOB"))
    assert isinstance(called, Post)
    assert called.text == "<@U0ANA> done"
    assert called.blocks[0] == {"type": "section", "text": {"type": "mrkdwn", "text": "<@U0ANA>"}}
    assert called.blocks[1:] == post.blocks
    asked = {"type": "section", "text": {"type": "mrkdwn", "text": "May I?"}, "expand": True}
    card = addressed(Post(text="May I?", blocks=(asked,), mention="U0ANA"), ("U0ANA",))
    assert isinstance(card, Post)
    assert card.blocks == ({**asked, "text": {"type": "mrkdwn", "text": "<@U0ANA> May I?"}},)
    full = {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 2995}}
    card = addressed(Post(text="x", blocks=(full,), mention="U0ANA"), ("U0ANA",))
    assert isinstance(card, Post)
    assert card.blocks[1:] == (full,)
    plain = addressed(Post(text="done", mention="U0ANA"), ("U0ANA",))
    assert (plain.text, plain.blocks) == ("<@U0ANA> done", ())  # type: ignore[union-attr]  # a post


@pytest.mark.parametrize("user", ["U0EVE", "operator", "!channel", "U0ANA> <!channel", "S0TEAM", ""])
def test_who_may_not_talk_to_us_is_not_called(user: str) -> None:
    called = addressed(
        Post(text="done", mention=user), ("U0ANA", "operator", "!channel", "U0ANA> <!channel", "S0TEAM")
    )
    assert called == Post(text="done")


def test_an_edit_names_those_who_may_talk_to_us_and_nobody_else() -> None:
    text = "Allowed by <@U0ANA> and <@U0EVE>. It says &lt;@U0ANA&gt; <@U0BEN> <!channel>"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    edit = Update(target_ts="1.1", text=text, blocks=(section,), names=("U0ANA", "U0EVE", "channel"))
    sent = named(harmless(edit), ("U0ANA", "U0BEN"))
    assert isinstance(sent, Update)
    assert sent.names == ()
    for shown in (sent.text, sent.blocks[0]["text"]["text"]):
        assert shown.count("<@U0ANA>") == 1
        for ping in ("<@U0EVE>", "<@U0BEN>", "<!channel>", "&lt;@"):
            assert ping not in shown


def test_a_new_message_names_nobody() -> None:
    post = Post(text="<@U0ANA>")
    assert named(harmless(post), ("U0ANA",)) == harmless(post)
