from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.observe.logs import TAGS, LineFormatter

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INF|WRN|ERR|DBG|MSG|CLD|RSP|MEM)  .*")


def record(text: str, level: int = logging.INFO, **extra: str) -> logging.LogRecord:
    made = logging.LogRecord("codebutler", level, "", 0, "%s", (text,), None)
    made.__dict__.update(extra)
    return made


def plain() -> LineFormatter:
    return LineFormatter(lambda text: text)


@pytest.mark.parametrize(
    ("level", "tag"),
    [(logging.DEBUG, "DBG"), (logging.INFO, "INF"), (logging.WARNING, "WRN"), (logging.CRITICAL, "ERR")],
)
def test_a_level_has_its_tag(level: int, tag: str) -> None:
    assert plain().format(record("x", level))[19:] == f" {tag}  x"


def test_a_record_may_name_its_own_tag_and_its_repository() -> None:
    assert plain().format(record("hi", tag="MSG", repo="shop")).endswith(" MSG  [shop] hi")


@pytest.mark.parametrize("tag", ["X\n", "CLD\n", "cld", "CLDX", ""])
def test_what_is_no_tag_is_not_taken_over(tag: str) -> None:
    assert plain().format(record("hi", tag=tag))[19:] == " INF  hi"


def ana(text: str, with_ids: bool) -> str:
    return text.replace("U0ANA", "Ana\x1b[2J (U0ANA)" if with_ids else "Ana\x1b[2J")


def test_people_have_names_in_the_log_and_ids_where_something_is_wrong() -> None:
    named = LineFormatter(str, ana)
    assert named.format(record('U0ANA: "hi"', tag="MSG")).endswith('MSG  Ana\\x1b[2J: "hi"')
    assert named.format(record("U0ANA may not", logging.WARNING)).endswith("WRN  Ana\\x1b[2J (U0ANA) may not")


def test_an_agents_tag_informs() -> None:
    assert plain().format(record("hi", tag="KMI"))[19:] == " KMI  hi"
    assert TAGS == {"DBG": 10, "INF": 20, "WRN": 30, "ERR": 40}


@given(st.text())
def test_a_record_is_always_exactly_one_line_without_controls(text: str) -> None:
    line = plain().format(record(text, repo=text))
    assert len(line.splitlines()) == 1
    assert LINE.fullmatch(line)
    assert "\x1b" not in line
    line.encode("utf-8")


def test_a_forged_line_shows_as_what_it_is() -> None:
    forged = "ok\n2026-02-14 15:04:05 ERR  all is lost\x1b[2J\u202e"
    assert plain().describe(record(forged)).text == "ok\\n2026-02-14 15:04:05 ERR  all is lost\\x1b[2J\\u202e"


def test_a_traceback_is_part_of_the_line_and_redacted_with_it() -> None:
    try:
        raise ValueError("xoxb-secret")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    made = record("failed")
    made.exc_info = info
    line = LineFormatter(lambda text: text.replace("xoxb-secret", "[redacted]")).format(made)
    assert line.endswith("ValueError: [redacted]")
    assert "failed\\nTraceback" in line
    assert "xoxb" not in line
