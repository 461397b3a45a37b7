"""A group takes less than a private chat, and neither more than Telegram allows."""

from __future__ import annotations

from codebutler.chat.delivery.planner import Buckets
from codebutler.chat.port import Call
from codebutler.chat.telegram.rules import TELEGRAM_LIMITS


def calls_in(channel: str, call: Call, seconds: int) -> int:
    """How many are made by somebody who makes each as soon as it may be."""
    buckets, now_s, made = Buckets(TELEGRAM_LIMITS), 0.0, 0
    while now_s < seconds:
        if (wait_s := buckets.wait_s(call, channel, now_s)) > 0:
            now_s += wait_s
        else:
            buckets.take(call, channel, now_s)
            made += 1
    return made


def test_a_group_takes_twenty_messages_a_minute_in_the_long_run() -> None:
    assert 160 < calls_in("tg:-1001", "post", 600) <= 200
    assert calls_in("tg:-1001", "update", 600) <= 110


def test_a_private_chat_takes_one_a_second() -> None:
    assert 500 < calls_in("tg:111", "post", 600) <= 600
    assert 280 < calls_in("tg:111", "update", 600) <= 310
