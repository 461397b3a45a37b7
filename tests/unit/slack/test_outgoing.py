"""What a worker says is harmless by the time it leaves, whatever the worker did with it."""

from __future__ import annotations

import json

import msgspec
import pytest

from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.slack.outgoing import harmless

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
