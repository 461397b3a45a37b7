"""Objects that nobody counts: a worker that uses one writes nothing, so its page stays shared with the fork server.

Since Python 3.12 an object whose reference count has one certain value is immortal: it is not counted and never freed
(PEP 683). None is. Python has no function that makes others so; this one gives them None's count.
"""

from __future__ import annotations

import gc
import sys
from ctypes import c_uint32

TRIED = ((3, 12), (3, 13))
"""The versions of CPython that this was measured and tested with."""


def make_immortal() -> int:
    """Make every object of this process immortal; returns how many, 0 where this Python cannot do it. Only for a
    process that forks: each object that exists now is kept until the process ends, and in each of its children."""
    if not can_be_immortal():
        return 0
    immortal = sys.getrefcount(None)
    made, layer = 0, gc.get_objects()
    while layer:
        counted = []
        for each in layer:
            if sys.getrefcount(each) < immortal:
                c_uint32.from_address(id(each)).value = immortal
                counted.append(each)
        made += len(counted)
        layer = gc.get_referents(*counted)
    return made


def can_be_immortal() -> bool:
    """Whether this Python has immortal objects, and keeps an object's count where we expect it."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in TRIED:
        return False
    probe = object()
    is_there = c_uint32.from_address(id(probe)).value == sys.getrefcount(probe) - 1
    return is_there and c_uint32.from_address(id(None)).value == sys.getrefcount(None)
