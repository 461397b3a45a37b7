"""Which Kimi a program is, by what it says of its version. Pure."""

from __future__ import annotations

import re

from codebutler.errors import AgentUnavailableError
from codebutler.process.lookup import KIMI_CODE
from codebutler_worker.agents.survey import Known, dotted, version_in

FLOOR = (2, 0, 2)
TESTED = (2, 1, 0)
NODE_FLOOR = (22, 19, 0)
PACKAGE = "@moonshot-ai/kimi-code"
INSTALL = KIMI_CODE.install

KNOWN = Known(KIMI_CODE.title, FLOOR, TESTED, INSTALL)


def judge(said: str) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError with the line that installs it.

    PyPI's `kimi-cli`, another program of the same name, says `kimi, version …`; from 1.52 on it does nothing but say
    that it is retired, and exits 0 whatever it is asked.
    """
    if "no longer maintained" in said:
        raise AgentUnavailableError(
            f"`kimi` is the retired kimi-cli, which does nothing any more: uninstall it, then run `{INSTALL}`"
        )
    version = version_in(said)
    if re.search(r"\bkimi, version\b", said):
        told = dotted(version) if version else ""
        raise AgentUnavailableError(
            f"`kimi` is the older kimi-cli {told}, which is kept up no longer: uninstall it, then run `{INSTALL}`"
        )
    if version is None:
        raise AgentUnavailableError(f"`kimi --version` tells no version: install Kimi Code with `{INSTALL}`")
    return KNOWN.judge(version)


def judge_node(said: str) -> None:
    """Raises AgentUnavailableError for a Node in which Kimi Code dies as it starts."""
    version = version_in(said)
    if version is not None and version < NODE_FLOOR:
        raise AgentUnavailableError(
            f"Kimi Code needs Node {dotted(NODE_FLOOR)} or newer, and the supervisor's PATH has {dotted(version)} "
            "first: install a newer Node and put it first in your PATH"
        )
