"""MCP servers that an agent may use: the allow-list in the agent's section of the configuration. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler.config.section import Section

OURS = "codebutler"
"""The name of the server that every agent gets (``agents/wishes.py``)."""
SERVER_NAME = rf"^(?!{OURS}\Z)[a-z0-9][a-z0-9-]{{0,39}}\Z"
ServerName = Annotated[str, Meta(pattern=SERVER_NAME)]


class McpServer(Section, frozen=True):
    """A server: a program that the agent starts inside its sandbox, or a ``url`` that it reaches like any other. It
    has no environment of its own, because an agent could read it."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: Annotated[str, Meta(pattern=r"^(https?://.*)?\Z")] = ""

    @property
    def fault(self) -> str:
        """Why it cannot be used, "" if it can."""
        return "" if bool(self.command) != bool(self.url) else "expected either a command or a url"
