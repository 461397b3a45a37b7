"""The base of all parts of the configuration. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Url = Annotated[str, Meta(pattern=r"^https?://")]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the configuration."""
