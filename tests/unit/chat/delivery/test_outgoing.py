"""Nobody is pinged by what a worker says but those who may talk to us, whatever the worker did with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codebutler.chat.delivery.outgoing import Editor, addressed
from codebutler.chat.slack.render import rendered
from codebutler.domain.message import (
    ApprovalCard,
    Button,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
    said,
)
from codebutler.domain.model import Post, React, Update, Upload
from codebutler.text.markup import person, plain

PINGS = "<!channel> <@U0ANA> <!subteam^S1> @here @everyone &lt;!here&gt; [x](person:U0ANA> \\<!here>"


@pytest.mark.parametrize(
    "message",
    [
        said(PINGS),
        said(plain(PINGS)),
        Message(markdown=PINGS, is_foreign=True),
        Message(markdown=PINGS, summary=PINGS),
        Message(markdown=PINGS, is_foreign=True, is_short=True),
        said("x", Button(PINGS, "codebutler.stop", "v")),
        said(f"**{PINGS}** _{PINGS}_ `{PINGS}` [{PINGS}](https://example.com) [{PINGS}](person:U0ANA)"),
        said(f"```\n{PINGS}\n```\n> {PINGS}"),
        said("[x](channel:C1><!here>) [x](person:!here) [x](https://a.b|<!here>)"),
        Message(
            card=ApprovalCard(
                (PermissionRequest(id="1", texts=(PINGS,), scope=PINGS, needed=2, votes=(PINGS,)),)
            )
        ),
        Message(card=ApprovalCard((PermissionRequest(id="1", texts=(PINGS,), is_plan=True, verdict=PINGS),))),
        Message(
            card=QuestionCard((Question(id="1", text=PINGS, options=(Option(PINGS, PINGS),), several=True),))
        ),
        Message(card=QuestionCard((Question(id="1", text=PINGS, options=(Option(PINGS, PINGS),)),))),
    ],
)
def test_no_mention_of_a_workers_reaches_anybody(message: Message) -> None:
    post = addressed(Post(message=message), ("U0ANA",))
    assert isinstance(post, Post)
    shown = json.dumps(rendered(post.message), ensure_ascii=False)
    for ping in ("<!", "<@", "@here", "@everyone", "&lt;!"):
        assert ping not in shown


def called(message: Message, user: str = "U0ANA", allowed: tuple[str, ...] = ("U0ANA",)) -> tuple[str, Any]:
    post = addressed(Post(message=message, mention=user), allowed)
    assert isinstance(post, Post)
    return rendered(post.message, post.mention)


def test_only_the_one_whom_a_post_is_for_is_called() -> None:
    answer = Message(markdown="done", is_foreign=True)
    text, blocks = called(answer)
    assert text == "<@U0ANA> done"
    assert blocks[0] == {"type": "section", "text": {"type": "mrkdwn", "text": "<@U0ANA>"}}
    assert blocks[1:] == rendered(answer)[1]
    _, blocks = called(
        Message(card=ApprovalCard((PermissionRequest(id="1", texts=("May I?",), verdict="Yes."),)))
    )
    assert [block["text"]["text"] for block in blocks] == ["<@U0ANA> May I?\nYes."]
    _, blocks = called(said("x" * 2995, Button("Stop", "codebutler.stop", "v")))
    assert [block["text"]["text"] for block in blocks[:2]] == ["<@U0ANA>", "x" * 2995]
    assert called(said("done")) == ("<@U0ANA> done", [])


@pytest.mark.parametrize("user", ["U0EVE", ""])
def test_who_may_not_talk_to_us_is_not_called(user: str) -> None:
    assert addressed(Post(message=said("done"), mention=user), ("U0ANA",)) == Post(message=said("done"))


@pytest.mark.parametrize("user", ["operator", "!channel", "U0ANA> <!channel", "S0TEAM"])
def test_what_is_no_user_is_not_called_though_it_is_allowed(user: str) -> None:
    assert called(said("done"), user, (user,)) == ("done", [])


def test_an_edit_names_those_who_may_talk_to_us_and_nobody_else() -> None:
    told = f"Allowed by {person('U0ANA')} and {person('U0EVE')}. It says {plain(person('U0ANA'))} {person('U0BEN')}"
    message = Message(markdown=told, names=("U0ANA", "U0EVE", "channel"))
    edit = addressed(Update(target="1.1", message=message), ("U0ANA", "U0BEN"))
    edit = Editor(str).edited(edit)
    assert isinstance(edit, Update)
    shown, _ = rendered(edit.message)
    assert shown == "Allowed by <@U0ANA> and U0EVE. It says [@U0ANA](person:U0ANA) U0BEN"


def test_a_new_message_names_nobody() -> None:
    post = addressed(Post(message=Message(markdown=person("U0ANA"), names=("U0ANA",))), ("U0ANA",))
    assert isinstance(post, Post)
    assert rendered(post.message) == ("@U0ANA", [])


def test_all_else_stays_as_it_is() -> None:
    for operation in (
        React(target="1.1", mark="working"),
        Upload(filename="answer.md", content=b"<!channel>"),
    ):
        assert addressed(operation, ()) == operation
