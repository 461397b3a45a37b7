"""What sections of the configuration are made of: their base, and the ranges of their values. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
# 0 = no limit.
Limit = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0)]
# An untrusted file may set these too: no number of them overflows a date or fills the memory.
DayInSeconds = Annotated[float, Meta(ge=0, le=86_400)]
YearInMinutes = Annotated[float, Meta(gt=0, le=525_600)]
Url = Annotated[str, Meta(pattern=r"^https?://")]
ChannelID = Annotated[str, Meta(pattern=r"^([CGD][A-Z0-9]{2,})?\Z")]
USER_ID = r"^[UW][A-Z0-9]{2,}\Z"
UserID = Annotated[str, Meta(pattern=USER_ID)]
# Telegram: at most 52 significant bits; groups are negative, people are not.
TelegramChat = Annotated[int, Meta(ge=-(2**52), le=2**52)]
TelegramUser = Annotated[int, Meta(ge=1, le=2**52)]
# Below the home directory, and not the whole of it.
HomePath = Annotated[str, Meta(pattern=r"^(?!/|[.]?/*$|.*[.][.]).+\Z")]
# A name (`*.` before it: whatever ends so) or an address, and perhaps a port.
HOST = r"^((\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
Host = Annotated[str, Meta(pattern=HOST)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the configuration."""
