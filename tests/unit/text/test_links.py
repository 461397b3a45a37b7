"""Links to messages lead into the workspace they are of."""

from __future__ import annotations

from codebutler.chat.delivery.outgoing import linked
from codebutler.model import Post, React, Upload
from codebutler.text.links import at_home, message_link


def test_a_link_leads_to_the_message_in_its_own_workspace() -> None:
    link = message_link("C1", "1700000000.000100", "fix a|b")
    assert link == "<https://slack.com/archives/C1/p1700000000000100|fix a¦b>"
    home = "<https://acme.slack.com/archives/C1/p1700000000000100|fix a¦b>"
    assert at_home(link, "https://acme.slack.com/") == home
    assert at_home(link, "") == link


def test_an_operations_links_are_put_right_in_text_and_blocks() -> None:
    link = message_link("C1", "1.2", "x")
    section = {"type": "section", "text": {"type": "mrkdwn", "text": link}}
    post = linked(Post(text=link, blocks=(section,)), "http://127.0.0.1:9/")
    assert str(post).count("http://127.0.0.1:9/archives/C1/p12|x") == 2
    for other in (React(target_ts="1.2", name="eyes"), Upload(filename="a", content=link.encode())):
        assert linked(other, "http://127.0.0.1:9/") == other
