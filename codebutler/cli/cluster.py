"""``codebutler cluster``: make a cluster, and say who belongs to it."""

from __future__ import annotations

from codebutler.cli import members
from codebutler.cli.command import App

app = App("Make a cluster of several machines, and say which belong to it.")


@app.callback()
def _group() -> None:
    """Make a cluster of several machines, and say which belong to it."""


app.command("create")(members.create)
app.command("invite")(members.invite)
app.command("remove")(members.remove)
