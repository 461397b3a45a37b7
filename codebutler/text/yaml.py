"""YAML from people and strangers: input that would take forever to parse, or crash the process, is refused first. Pure.

A merge key (``<<``) doubles what it merges with each step, and deep nesting overflows the stack of the C library.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

MAX_DEPTH = 50
MAX_MERGED = 20
MERGE = "tag:yaml.org,2002:merge"


def decode_yaml(data: bytes | str, shape: Any) -> Any:
    """The data as ``shape``, a type. Raises msgspec.DecodeError; msgspec.ValidationError if it is YAML of another
    shape."""
    try:
        _bound(data)
        return msgspec.yaml.decode(data, type=shape)
    except msgspec.DecodeError:
        raise
    # YAML's own errors, and ValueError for an invalid date, number or byte string.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _bound(data: bytes | str) -> None:
    depth = aliases = 0
    merges = False
    for event in yaml.parse(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        elif isinstance(event, yaml.ScalarEvent):
            merges = merges or event.value == "<<" or event.tag == MERGE
        if depth > MAX_DEPTH:
            raise msgspec.DecodeError(f"nested more than {MAX_DEPTH} levels deep")
        if merges and aliases > MAX_MERGED:
            raise msgspec.DecodeError(f"more than {MAX_MERGED} aliases (*name) beside a merge key (<<)")
