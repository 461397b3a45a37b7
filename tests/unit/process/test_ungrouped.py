"""What a task group raises, for a caller that waits for one kind of error."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.platform.tasks import ungrouped


async def _fails(error: Exception) -> None:
    raise error


async def _group(*errors: Exception) -> None:
    with ungrouped():
        async with asyncio.TaskGroup() as tasks:
            for error in errors:
                tasks.create_task(_fails(error))


async def test_an_error_that_is_alone_is_raised_as_itself() -> None:
    error = OSError("the disk is full")
    with pytest.raises(OSError, match="the disk is full") as raised:
        await _group(error)
    assert raised.value is error


async def test_several_errors_stay_together() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await _group(OSError("one"), ValueError("two"))
    assert {type(each) for each in raised.value.exceptions} == {OSError, ValueError}


async def test_without_an_error_nothing_is_raised() -> None:
    await _group()
