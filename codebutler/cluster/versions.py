"""Which hosts a gateway can serve: those of its own version of the cluster's messages, and of the one before. Pure.

So a message of the version before stays readable: what is added has a default, and what is unknown is passed over.
"""

from __future__ import annotations

from codebutler.domain.version import VERSION


def misfit(host: int, gateway: int, *, name: str, release: str) -> str:
    """Why a gateway of that version cannot serve the host ``name`` of that one, and what to do; "" if it can.
    ``release``: the host's, "" if it does not say."""
    runs = f"{name} runs CodeButler {release or 'of an unknown version'}"
    if host > gateway:
        return f"{runs}, too new for its gateway ({VERSION}): update CodeButler at the gateway first"
    if host < gateway - 1:
        return f"{runs}, too old for its gateway ({VERSION}): update CodeButler on {name}"
    return ""
