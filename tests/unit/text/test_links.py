"""Links to messages lead into the workspace they are of."""

from __future__ import annotations

from codebutler.chat.delivery.outgoing import Editor
from codebutler.domain.message import ApprovalCard, Message, PermissionRequest
from codebutler.domain.model import Post, React, Upload
from codebutler.text.markup import message_link, with_real_links


def test_a_link_leads_to_the_message_in_its_own_workspace() -> None:
    link = message_link("C1", "1700000000.000100", "fix a|b")
    assert link == "[fix a|b](https://slack.com/archives/C1/p1700000000000100)"
    home = "[fix a|b](https://acme.slack.com/archives/C1/p1700000000000100)"
    assert with_real_links(link, "https://acme.slack.com/") == home
    assert with_real_links(link, "") == link


def test_an_operations_links_are_put_right_in_all_its_texts() -> None:
    link = message_link("C1", "1.2", "x")
    card = ApprovalCard((PermissionRequest(id="a", texts=(link,), verdict=link),))
    post = Editor(str).edited(Post(message=Message(card=card)), "http://127.0.0.1:9/")
    assert str(post).count("(http://127.0.0.1:9/archives/C1/p12)") == 2
    for other in (React(target_ts="1.2", name="eyes"), Upload(filename="a", content=link.encode())):
        assert Editor(str).edited(other, "http://127.0.0.1:9/") == other
