"""A terminal as messages: pages that fill and stay, pages that change, and an end where there is too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler.chat.layout import Section
from codebutler.chat.slack.render import mrkdwn
from codebutler_worker.agents.backend import Finished, Output
from codebutler_worker.present.terminal import (
    HIDDEN_KEY,
    MAX_PAGES,
    TerminalPage,
    TerminalPages,
    ended,
    shown,
)

SESSION = "01234567"


class Channel:
    """What stands in the thread after each look at the pages."""

    def __init__(self, limit: int = 3500) -> None:
        self.pages = TerminalPages(limit)
        self.messages: dict[int, str] = {}
        self.final: set[int] = set()

    def take(self, output: Output) -> None:
        self.pages.take(output)
        for page in self.pages.due():
            assert page.number not in self.final
            self.messages[page.number] = mrkdwn(Section(shown(page, SESSION)))
            if page.final:
                self.final.add(page.number)

    @property
    def lines(self) -> list[str]:
        """Every line that can be read."""
        texts = [self.messages[number] for number in sorted(self.messages)]
        return [line for text in texts for line in text.split("\n") if line not in ("```", "⋯")]


def rows(start: int, end: int) -> tuple[str, ...]:
    return tuple(f"line {number:05d}" for number in range(start, end))


def test_what_may_change_is_replaced_and_what_is_settled_stays() -> None:
    channel = Channel()
    channel.take(Output(live=("10%",)))
    channel.take(Output(live=("90%",)))
    channel.take(Output(settled=("100%",), live=("next",)))
    assert channel.messages == {0: "```\n100%\nnext\n```"}


def test_a_full_page_is_never_touched_again() -> None:
    channel = Channel(400)
    for number in range(0, 200, 10):
        channel.take(Output(settled=rows(number, number + 10), live=("prompt",)))
    assert channel.final == set(range(len(channel.final)))
    assert channel.lines == [*rows(0, 200), "prompt"]
    assert all(len(text) <= 400 + 8 for text in channel.messages.values())


@given(st.lists(st.integers(0, 120), max_size=12), st.integers(0, 60))
def test_nothing_is_lost_or_doubled_while_the_pages_last(steps: list[int], live: int) -> None:
    channel = Channel(2000)
    at = 0
    for step in steps:
        step = min(step, 1400 - at)
        channel.take(Output(settled=rows(at, at + step), live=rows(at + step, at + step + live)))
        at += step
    channel.take(Output())
    assert channel.lines == list(rows(0, at))


def test_a_screen_that_shrinks_leaves_no_old_lines_behind() -> None:
    channel = Channel(400)
    channel.take(Output(live=rows(0, 100)))
    assert len(channel.messages) > 2
    channel.take(Output(live=("cleared",)))
    assert channel.lines == ["cleared"]
    channel.take(Output(live=rows(0, 60)))
    assert channel.lines == list(rows(0, 60))


def test_beyond_the_last_page_only_the_end_is_shown_and_says_so() -> None:
    channel = Channel(400)
    for number in range(0, 5000, 50):
        channel.take(Output(settled=rows(number, number + 50)))
    assert len(channel.messages) == MAX_PAGES
    last = channel.messages[MAX_PAGES - 1]
    assert "left out: `!logs 01234567` has everything" in last
    assert "line 04999" in last
    assert channel.lines[0] == "line 00000"


def test_what_was_never_rendered_is_counted() -> None:
    channel = Channel()
    channel.take(Output(settled=("a",), live=("b",), skipped_bytes=5_000_000))
    assert channel.messages[0].startswith("… 5.0 MB left out")


def test_an_answer_to_what_was_typed_is_a_message_of_its_own() -> None:
    channel = Channel()
    channel.take(Output(live=(">>>",)))
    channel.take(Output(live=(">>> 1+1", "2", ">>>"), fresh=True))
    channel.take(Output(live=(">>> 2+2", "4", ">>>"), fresh=True))
    assert channel.messages == {
        0: "```\n&gt;&gt;&gt;\n```",
        1: "```\n&gt;&gt;&gt; 1+1\n2\n&gt;&gt;&gt;\n```",
        2: "```\n&gt;&gt;&gt; 2+2\n4\n&gt;&gt;&gt;\n```",
    }


def test_secrets_do_not_leave_not_even_in_pieces() -> None:
    channel = Channel()
    key = ("-----BEGIN RSA PRIVATE KEY-----", *(f"MIIEow{number}abc" for number in range(30)))
    channel.take(Output(settled=(f"token ghp_{'a' * 36}", *key[:20]), live=key[20:]))
    channel.take(Output(settled=(*key[20:], "-----END RSA PRIVATE KEY-----", "after"), live=()))
    text = "\n".join(channel.messages.values())
    assert "ghp_" not in text
    assert "MIIEow" not in text
    assert text.endswith(f"{HIDDEN_KEY}\nafter\n```")


def test_nothing_in_it_pings_or_leaves_the_code_block() -> None:
    channel = Channel()
    channel.take(Output(live=("<@U123> <!channel> ``` *bold* & @here",)))
    text = channel.messages[0]
    assert text.count("```") == 2
    assert "<@" not in text
    assert "<!" not in text
    assert "@here" not in text


def test_one_endless_line_is_cut_to_fit() -> None:
    channel = Channel(400)
    channel.take(Output(settled=("<" * 500,)))
    assert all(len(text) <= 408 for text in channel.messages.values())
    assert "".join(channel.lines).count("&lt;") == 500


def test_how_it_went_is_one_line() -> None:
    def line(finished: Finished, *, interactive: bool = False) -> str:
        return ended(finished, 3.4, SESSION, interactive=interactive)

    assert line(Finished(True, "x", "done", exit_code=0)) == "✅ exit code 0 · 3s · `!logs 01234567`"
    assert line(Finished(False, "x", "failed", exit_code=7)) == "❌ exit code 7 · 3s · `!logs 01234567`"
    assert line(Finished(False, "", "stopped", exit_code=130)).startswith("🛑 stopped · exit code 130")
    assert "session.timeoutMinutes" in line(Finished(False, "", "timeout", exit_code=129))
    assert line(Finished(True, "", "done", exit_code=0), interactive=True).startswith(
        "✅ Session ended · exit"
    )
    assert line(Finished(False, "nope is not installed: install it", "unavailable")).startswith("❌ nope")


def test_an_empty_page_shows_that_it_is_empty() -> None:
    assert shown(TerminalPage(0, ()), SESSION) == "⋯"
    assert shown(TerminalPage(0, ()), SESSION, "done") == "done"
