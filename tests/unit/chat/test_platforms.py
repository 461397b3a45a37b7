"""A chat platform is known to its own folder, the configuration and the one list; everybody else asks the list."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codebutler.chat.platform import PLATFORMS, Platform, platforms
from codebutler.config.chats import PEOPLE, SECTIONS
from codebutler.config.load import tokens_of
from codebutler.config.resolve import VARIABLES
from codebutler.config.schema import Config

ROOT = Path(__file__).parents[3]
LISTS = "codebutler/chat/platform.py"
ELSEWHERE = {
    "codebutler/text/redact.py": "the tokens of many services",
}
"""Who else names Telegram, and what for."""


def test_the_list_has_every_chat_of_the_configuration() -> None:
    assert list(PLATFORMS) == [each.title for each in SECTIONS]
    assert [each.section for each in platforms()] == [*SECTIONS]


def test_no_other_file_names_a_chat_that_is_not_the_embedded_one() -> None:
    found = set()
    for room in ("codebutler", "workers"):
        for path in (ROOT / room).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            own = name.startswith(("codebutler/chat/telegram/", "codebutler/config/")) or name == LISTS
            if not own and re.search("telegram", path.read_text(encoding="utf-8"), re.IGNORECASE):
                found.add(name)
    assert found == set(ELSEWHERE)


def test_a_supervisor_imports_only_the_chats_that_it_serves() -> None:
    shown = _imported("import codebutler.parent.bootstrap")
    assert not [
        name for name in shown if name.startswith(("codebutler.chat.slack", "codebutler.chat.telegram"))
    ]
    shown = _imported("from codebutler.chat.platform import platform; platform('Telegram')")
    assert {name for name in shown if name.startswith("codebutler.chat.telegram.")} == {
        "codebutler.chat.telegram.platform"
    }


def _imported(program: str) -> list[str]:
    told = f"{program}; import sys; print(*sys.modules)"
    return subprocess.check_output([sys.executable, "-I", "-c", told], text=True).split()


@pytest.mark.parametrize("chat", platforms(), ids=lambda chat: chat.name)
def test_each_says_of_itself_what_the_rest_asks(chat: Platform) -> None:
    section = chat.section
    path = ".".join
    assert {path(section.path(PEOPLE))} <= {option.key for option in chat.setup_options}
    assert {f"{section.key}.{token.key}" for token in section.tokens} <= set(tokens_of(Config()))
    assert {f"{section.key}.{token.key}" for token in section.tokens} <= {
        variable.key for variable in VARIABLES.values()
    }
    flags = [option.flag for each in platforms() for option in (*each.setup_options, *each.place_options)]
    assert len(flags) == len(set(flags))
    assert section().place == ""
    assert section.person_words


def test_one_chats_ids_are_no_others() -> None:
    assert len({each.prefix for each in SECTIONS}) == len(SECTIONS)
    for each in SECTIONS:
        person = next(filter(None, map(each.person_in, ("U0ANA1234", "111", f"{each.prefix}111"))))
        assert [other for other in SECTIONS if re.fullmatch(other.person_id, person)] == [each]
