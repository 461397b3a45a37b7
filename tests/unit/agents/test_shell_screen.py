"""What a program writes is shown as a terminal shows it, whole, however it comes in pieces."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.shell.screen import BULK_CHARS, ScreenLines, TerminalScreen


def lines(*pieces: bytes) -> list[str]:
    """Everything shown after the pieces, settled or not."""
    terminal = TerminalScreen()
    settled: list[str] = []
    for piece in pieces:
        terminal.feed(piece)
    shown = terminal.take()
    settled += shown.settled
    return [*settled, *shown.live]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"one\r\ntwo", ["one", "two"]),
        (b" 10%\r 50%\r100%\r\ndone", ["100%", "done"]),
        (b"\x1b[31mred\x1b[0m \x1b[1;4mbold\x1b[m", ["red bold"]),
        (b"first\r\nsecond\r\x1b[1A\x1b[2KFIRST\r\n", ["FIRST", "second"]),
        (b"old screen\x1b[2J\x1b[Hnew", ["new"]),
        (b"abc\b\bX", ["aXc"]),
        (b"a\tb", ["a       b"]),
        (b"\x1b]0;a title\x07text", ["text"]),
        ("é e\u0301 日本 👨‍👩‍👧 end".encode(), ["é é 日本 👨👩👧 end"]),
        (b"\x1b[0;38:5:245mgrey\x1b[4:3m curly\x1b[38:2::9:9:9m\x1b[0m.", ["grey curly."]),
        (b"\x1b[>1u\x1b[<u\x1b[=5;1uready\x1b[?2004h\x1b[>4;2m!", ["ready!"]),
        (b"a\x1bPq#0;1;2\x1b\\b\x1b_Gx\x07c", ["abc"]),
        (b"\xff\xfe\x00\x01bin", ["\ufffd\ufffdbin"]),
        (b"$ vi\r\n\x1b[?1049h\x1b[H~\r\n~\r\n\x1b[3;9Hfile", ["~", "~", "        file"]),
        (b"$ vi\r\n\x1b[?1049h\x1b[H~\r\n~\x1b[?1049l$ ls", ["$ vi", "$ ls"]),
        (b"$ less\r\n\x1b[?1049h" + b"line\r\n" * 99 + b"\x1b[?1049l$ ", ["$ less", "$"]),
        (b"one\r\n\x1b[?47hother\x1b[2J\x1b[?47;25ltwo\x1b[?1049l", ["one", "two"]),
        (b"\n\n\nlast", ["", "", "", "last"]),
        (b"", []),
    ],
)
def test_a_terminal_would_show_it_so(written: bytes, shown: list[str]) -> None:
    assert lines(written) == shown


def test_a_line_wider_than_the_terminal_stays_one_line() -> None:
    address = b"https://example.com/" + b"x" * 1000
    assert lines(address, b"\r\nnext") == [address.decode(), "next"]


def test_a_wrapped_line_stays_one_line_when_it_scrolls_off() -> None:
    address = "https://example.com/" + "x" * 1000
    rest = [str(number) for number in range(100)]
    assert lines("\r\n".join([address, *rest]).encode()) == [address, *rest]


def test_what_scrolls_off_is_settled_and_what_is_left_may_change() -> None:
    terminal = TerminalScreen(rows=5)
    terminal.feed(b"".join(b"line %d\r\n" % number for number in range(8)))
    shown = terminal.take()
    assert shown.settled == ("line 0", "line 1", "line 2", "line 3")
    assert shown.live == ("line 4", "line 5", "line 6", "line 7")
    terminal.feed(b"more")
    assert terminal.take().settled == ()


@pytest.mark.parametrize("size", [1, 7, 100, BULK_CHARS, 10 * BULK_CHARS])
def test_bulk_text_comes_out_whole_in_pieces_of_any_size(size: int) -> None:
    expected = [f"line {number} äöü" for number in range(3000)]
    written = "".join(f"{line}\r\n" for line in expected).encode()
    assert lines(*(written[at : at + size] for at in range(0, len(written), size))) == expected


def test_bulk_text_after_a_progress_bar_and_before_colours_stays_in_order() -> None:
    bulk = [f"row {number}" for number in range(500)]
    written = b" 50%\r100%\r\n" + "".join(f"{row}\r\n" for row in bulk).encode() + b"\x1b[32mend\x1b[0m"
    assert lines(written) == ["100%", *bulk, "end"]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_no_bytes_break_it(pieces: list[bytes]) -> None:
    assert all("\x1b" not in line and "\n" not in line for line in lines(*pieces))


@pytest.mark.parametrize(
    "hostile", [b"\x1b[1;2;3;4;5;6;7;8;9m", b"\x1b[?;;;h", b"\x1b[99999999C", b"\x1b[5;1r"]
)
def test_a_sequence_that_the_emulator_trips_over_costs_itself_only(hostile: bytes) -> None:
    assert "".join(lines(hostile + b"\x1b[mafter")).endswith("after")


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_sequence_may_be_cut_anywhere(cut: int) -> None:
    written = b"a\x1b[>1;2ub\x1b[31mc"
    assert lines(written[:cut], written[cut:]) == ["abc"]


def test_an_endless_title_does_not_swallow_everything() -> None:
    assert lines(b"\x1b]0;" + b"t" * 200_000, b"\r\n", b"back")[-1] == "back"


def test_after_a_gap_it_begins_on_a_new_screen() -> None:
    terminal = TerminalScreen()
    terminal.feed(b"before\r\nhalf a line\x1b[3")
    terminal.skip()
    terminal.feed(b"after")
    shown = terminal.take()
    assert (shown.settled, shown.live) == (("before", "half a line"), ("after",))


def test_a_new_page_begins_with_the_prompt() -> None:
    terminal = TerminalScreen()
    terminal.feed(b"Python 3\r\n>>> ")
    assert terminal.take().live == ("Python 3", ">>>")
    terminal.turn_page()
    terminal.feed(b"1+1\r\n2\r\n>>> ")
    assert terminal.take().live == (">>> 1+1", "2", ">>>")


def test_a_program_that_draws_above_the_new_page_shows_its_whole_screen() -> None:
    terminal = TerminalScreen()
    terminal.feed(b"menu\r\n[a] [b]\r\n? ")
    terminal.turn_page()
    terminal.feed(b"\x1b[Hchosen a")
    assert terminal.take().live[0] == "chosen a"


def test_who_leaves_a_full_screen_finds_the_first_one_on_a_new_page() -> None:
    terminal = TerminalScreen()
    terminal.feed(b"welcome\r\n$ top\r\n\x1b[?1049h\x1b[Htop - 21:51\r\n 1 root")
    assert terminal.take().live == ("top - 21:51", " 1 root")
    terminal.turn_page()
    terminal.feed(b"\x1b[?1049l$ ")
    assert terminal.take() == ScreenLines((), ("$",))


def test_a_flood_on_the_second_screen_gives_the_first_one_back() -> None:
    terminal = TerminalScreen()
    terminal.feed(b"before\r\n\x1b[?1049hmenu")
    terminal.skip()
    terminal.feed(b"after")
    assert terminal.take() == ScreenLines(("before",), ("after",))


def test_random_bytes_are_shown_in_bounded_time() -> None:
    assert lines(os.urandom(100_000))


@pytest.mark.parametrize("control", ["\x1b#8", "\x1b[2J", "\x1b[H\x1b[J", "\x1b[1J", "\x1b[?5h\x1b[?5l"])
def test_no_control_sequence_takes_much_longer_than_text(control: str) -> None:
    """A program's whole output is read, and whoever writes a file that somebody prints decides what that is."""
    screen = TerminalScreen()
    screen.feed(b"x" * 220 * 50)
    began_s = time.process_time()
    screen.feed(control.encode() * (60_000 // len(control)))
    assert time.process_time() - began_s < 5
    screen.feed(b"\x1b[2J\x1b[Habove\r\nhere\r\nbelow\x1b[2;3H\x1b[J")
    assert screen.take().live == ("above", "he")
