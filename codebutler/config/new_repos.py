"""The configuration section for repositories created from the chat. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler.config.chats import SECTIONS
from codebutler.config.section import Section
from codebutler.domain.refs import PersonRef

EVERYBODY = "*"
ALLOWED = rf"^({'|'.join(each.person_id for each in SECTIONS)}|[*])\Z"
ROOT = r"^(~?/[^\n]*)?\Z"


class NewReposSection(Section, frozen=True):
    """``root``: the directory in which they are created or cloned, "" = off; ``allow``: which users of CodeButler may
    create them, ``*`` = all. A clone may take ``timeout_minutes`` and ``max_mb`` of disk, 0 = any."""

    root: Annotated[str, Meta(pattern=ROOT)] = ""
    allow: tuple[Annotated[PersonRef, Meta(pattern=ALLOWED)], ...] = ()
    timeout_minutes: Annotated[float, Meta(gt=0, le=1440)] = 15
    max_mb: Annotated[int, Meta(ge=0, le=2**24)] = 4096
