"""Links to messages lead to where people see them."""

from __future__ import annotations

from functools import partial

import pytest

from codebutler.chat.delivery.outgoing import Editor
from codebutler.config.chats import message_url
from codebutler.domain.message import ApprovalCard, Message, PermissionRequest, said
from codebutler.domain.model import Post, React, Upload
from codebutler.domain.refs import ConversationRef
from codebutler.text.markup import PAGES, linked, message_link, plain
from codebutler.web.server import DashboardAddress

HOME = "http://127.0.0.1:9/"


def test_a_link_leads_to_the_message_in_its_own_workspace() -> None:
    link = message_link("C1", "1700000000.000100", plain("fix [a|b]"))
    home = "[fix \\[a\\|b\\]](https://acme.slack.com/archives/C1/p1700000000000100)"
    assert linked(link, partial(message_url, home="https://acme.slack.com/")) == home
    assert linked(link, message_url) == home.replace("acme.slack.com", "slack.com")


def test_a_message_of_a_supergroup_has_an_address_and_that_of_a_private_chat_has_none() -> None:
    link = message_link("tg:-1001234567890", "000000000052", "there")
    assert linked(link, message_url) == "[there](https://t.me/c/1234567890/52)"
    for channel, ref in (("tg:111", "000000000052.111"), ("tg:-5", "000000000001")):
        assert linked(f"see {message_link(channel, ref, '**it**')}.", message_url) == "see **it**."
    assert message_url("tg:-1001234567890") == "https://t.me/c/1234567890/1"
    assert message_url("C1", home=HOME) == "http://127.0.0.1:9/archives/C1"


def test_a_ref_that_is_none_has_no_address() -> None:
    for ref in ("abc", "-5", "1e9", "٣", "9" * 40):
        assert message_url("tg:-1001234567890", ref) == "", ref


def test_an_agents_own_markdown_keeps_its_words() -> None:
    said = Post(message=Message(markdown="see [x](message:C1/1.2)", is_foreign=True))
    assert Editor(str).edited(said, HOME) == said


def test_foreign_text_forges_no_link() -> None:
    forged = plain("[x](message:C1/1.2)")
    assert linked(forged, message_url) == forged


def test_an_operations_links_are_put_right_in_all_its_texts() -> None:
    link = message_link("C1", "1.2", "x")
    card = ApprovalCard((PermissionRequest(id="a", texts=(link,), verdict=link),))
    post = Editor(str).edited(Post(message=Message(card=card)), HOME)
    assert str(post).count("(http://127.0.0.1:9/archives/C1/p12)") == 2
    for other in (React(target="1.2", mark="working"), Upload(filename="a", content=link.encode())):
        assert Editor(str).edited(other, HOME) == other


def test_a_link_to_what_stands_in_a_direct_conversation_leads_there() -> None:
    editor = Editor(
        str, where=lambda channel, ref: ConversationRef("D1") if (channel, ref) == ("C1", "1.2") else channel
    )
    posted = Post(
        message=Message(markdown=f"{message_link('C1', '1.2', 'a')} {message_link('C1', '1.3', 'b')}")
    )
    edited = editor.edited(posted, HOME)
    assert isinstance(edited, Post)
    assert edited.message.markdown == f"[a]({HOME}archives/D1/p12) [b]({HOME}archives/C1/p13)"


@pytest.mark.parametrize(
    ("dashboard", "workspace", "leads_to"),
    [
        ("", "http://127.0.0.1:9/", ""),
        ("http://127.0.0.1:7788/", "http://127.0.0.1:9/", "http://127.0.0.1:7788/"),
        ("http://[::1]:7788/", "http://localhost:9/", "http://[::1]:7788/"),
        ("http://127.0.0.1:7788/", "https://acme.slack.com/", ""),
        ("http://127.0.0.1:7788/", "", ""),
        ("http://0.0.0.0:7788/", "http://127.0.0.1:9/", ""),
        ("http://[::]:7788/", "https://acme.slack.com/", ""),
        ("http://192.0.2.7:7788/", "https://acme.slack.com/", "http://192.0.2.7:7788/"),
        ("http://box.example:7788/", "", "http://box.example:7788/"),
    ],
)
def test_a_page_is_linked_where_it_can_be_opened(dashboard: str, workspace: str, leads_to: str) -> None:
    address = DashboardAddress()
    address.url = dashboard
    post = Post(message=said(f"📝 **1 file** · +1 · [Review]({PAGES}changes/shop/t1)\n`a`"))
    edited = Editor(str, pages=address.url_for).edited(post, workspace)
    assert isinstance(edited, Post)
    link = f" · [Review]({leads_to}changes/shop/t1)" if leads_to else ""
    assert edited.message.markdown == f"📝 **1 file** · +1{link}\n`a`"
