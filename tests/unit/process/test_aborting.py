"""Dropping a connection, also one whose transport breaks where the connection has ended."""

from __future__ import annotations

import asyncio

from codebutler.platform.tasks import abort


class Gone(asyncio.WriteTransport):
    """As asyncio's TLS transport in Python 3.11.2, after its connection."""

    def abort(self) -> None:
        raise AttributeError("'NoneType' object has no attribute '_abort'")


def test_a_connection_that_has_ended_is_left_as_it_is() -> None:
    abort(Gone())
