"""A remote repository's URL, validated as text: https and ssh only, and nothing that git takes for an option, a
program or a file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?"
_HTTPS = re.compile(rf"https://(?P<login>[^@/\s]+@)?(?P<host>{HOST})/(?P<path>[^\s?#]+)")
_SSH = re.compile(rf"ssh://(?P<login>[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?P<host>{HOST})/(?P<path>[^\s?#]+)")
_SCP = re.compile(
    r"(?P<login>[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^\s:-][^\s:]*)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """``host`` includes its port; ``path`` has no leading slash and no ``.git``. ``login``: what precedes the host,
    with its ``@``."""

    kind: Literal["https", "ssh"]
    login: str
    host: str
    path: str

    @property
    def shown(self) -> str:
        """For display: without user name and password."""
        return f"{self.host}/{self.path}"


def address_in(url: str) -> Address | None:
    """None for anything else."""
    for pattern in (_HTTPS, _SSH, _SCP):
        is_fit = url.isprintable() and "::" not in url and ("://" in url) == (pattern is not _SCP)
        if is_fit and (found := pattern.fullmatch(url)):
            path = found["path"].strip("/").removesuffix(".git")
            if path and not path.startswith("-") and ".." not in path.split("/"):
                is_https = pattern is _HTTPS
                return Address("https" if is_https else "ssh", found["login"] or "", found["host"], path)
    return None
