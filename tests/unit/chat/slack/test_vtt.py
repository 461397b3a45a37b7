"""Captions to what was spoken."""

from __future__ import annotations

import pytest

from codebutler.chat.slack.download import spoken

CAPTIONS = (
    "\ufeffWEBVTT\r\n\r\nNOTE made by a machine\r\n\r\n1\r\n00:00:00.000 --> 00:00:02.000 align:start\r\n"
    "<v Ana>Run the &lt;tests&gt;\r\nplease\r\n\r\n00:00:02.000 --> 00:00:03.000\r\n<i>now</i> &amp; report\r\n"
)


def test_the_cues_become_one_line() -> None:
    assert spoken(CAPTIONS) == "Run the <tests> please now & report"


@pytest.mark.parametrize("text", ["", "WEBVTT", "WEBVTT\n\nno cues", "<!doctype html><html>-->"])
def test_what_is_no_captions_is_nothing(text: str) -> None:
    assert spoken(text) == ""
