"""Which pull requests a webhook of GitHub or GitLab is about. Pure.

Only numbers are taken from it: whoever is told asks the service itself, so nothing else in it matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST = 20
LARGEST = 2**62
CHECKS = ("check_run", "check_suite", "workflow_run", "workflow_job")
JOBS = ("pipeline", "build")
"""What GitHub's events about checks hold, and what kind GitLab's are. They name their pull requests or not."""


def pulls_in(body: object) -> tuple[int, ...] | None:
    """Their numbers; () for checks of which it does not say, None if it is about something else."""
    if not isinstance(body, dict):
        return None
    found = [
        _at(body, "pull_request", "number"),
        _at(body, "issue", "number"),
        _at(body, "merge_request", "iid"),
    ]
    if body.get("object_kind") == "merge_request":
        found.append(_at(body, "object_attributes", "iid"))
    for name in CHECKS:
        listed = _at(body, name, "pull_requests")
        found += [_at(each, "number") for each in (listed if isinstance(listed, list) else [])[:MOST]]
    numbers = _numbers(found)
    is_status = isinstance(body.get("sha"), str) and "state" in body
    is_check = is_status or body.get("object_kind") in JOBS or any(name in body for name in CHECKS)
    return numbers if numbers or is_check else None


def _at(body: Any, *path: str) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _numbers(found: Iterable[Any]) -> tuple[int, ...]:
    kept = (each for each in found if isinstance(each, int) and not isinstance(each, bool))
    return tuple(dict.fromkeys(each for each in kept if 0 < each < LARGEST))[:MOST]
