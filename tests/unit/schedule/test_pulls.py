"""Of a webhook about pull requests only their numbers count, and only from who knows the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.errors import ConfigError
from codebutler.schedule.hooks import LARGEST_NUMBER, MOST_PULLS, HookRunner, pulls_in
from tests.unit.schedule.test_hook_calls import World
from tests.unit.schedule.test_hooks import SECRET, hook, signed

FILE = "hooks:\n  - {name: shop-pulls, secretEnv: CI_SECRET, repo: shop, pulls: true}\n"


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ({"check_run": {"pull_requests": [{"number": 7}, {"number": 12}, {"number": 7}]}}, (7, 12)),
        ({"check_suite": {"pull_requests": []}}, ()),
        ({"workflow_job": {"id": 1}}, ()),
        ({"sha": "abc", "state": "failure", "context": "ci"}, ()),
        ({"pull_request": {"number": 7}, "review": {"body": "no"}}, (7,)),
        ({"issue": {"number": 7}, "comment": {"body": "please"}}, (7,)),
        ({"object_kind": "pipeline", "merge_request": {"iid": 3}, "object_attributes": {"iid": 900}}, (3,)),
        ({"object_kind": "pipeline", "merge_request": None}, ()),
        ({"object_kind": "build", "sha": "abc"}, ()),
        ({"object_kind": "note", "merge_request": {"iid": 3}}, (3,)),
        ({"object_kind": "merge_request", "object_attributes": {"iid": 3}}, (3,)),
        ({"object_kind": "push", "sha": "abc"}, None),
        ({"zen": "Keep it simple."}, None),
        ({"pull_request": {"number": True}}, None),
        ({"pull_request": {"number": LARGEST_NUMBER}}, None),
        ({"pull_request": {"number": -1}}, None),
        ({"pull_request": {"number": "7; rm"}}, None),
        ({"issue": [7], "merge_request": "3"}, None),
        ([], None),
        ("text", None),
    ],
)
def test_only_the_numbers_count(body: object, numbers: tuple[int, ...] | None) -> None:
    assert pulls_in(body) == numbers


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["check_run", "pull_requests", "number", "issue", "iid", "merge_request", "sha"])
            | st.text(),
            inner,
        )
    ),
)


@given(JSON)
def test_whatever_comes_they_are_few_and_small(body: object) -> None:
    found = pulls_in(body)
    assert found is None or (len(found) <= MOST_PULLS and all(0 < each < LARGEST_NUMBER for each in found))


async def test_a_call_only_tells_the_worker_and_starts_nothing() -> None:
    world, called = World(), hook(file=FILE)
    runner: HookRunner = world.desk()
    for key in ("k", "k"):
        assert await runner.called(called, {"pull_request": {"number": 7}}, key) == "accepted"
    assert await runner.called(called, {"zen": "Keep it simple."}, "z") == "accepted"
    assert world.looked == [("shop", (7,))] * 2
    assert (world.posts, world.wishes, world.notes) == ({}, {}, {})


def test_github_signs_and_gitlab_sends_the_secret() -> None:
    called = hook(file=FILE)
    assert called.admits(b"{}", signed(b"{}"))
    assert called.admits(b"{}", {"x-gitlab-token": SECRET})
    for headers in (
        {"x-gitlab-token": ""},
        {"x-gitlab-token": f"{SECRET}x"},
        {"x-gitlab-token": "\u00e4"},
        {"x-gitlab-token": "wrong", "authorization": f"Bearer {SECRET}"},
        {**signed(b"{ }"), "x-gitlab-token": SECRET},
    ):
        assert not called.admits(b"{}", headers)


@pytest.mark.parametrize("more", ["prompt: x", "agent: claude", "channel: C1"])
def test_news_of_pull_requests_is_no_prompt(more: str) -> None:
    with pytest.raises(ConfigError, match="`pulls` takes no prompt"):
        hook(file=FILE.replace("pulls: true", f"pulls: true, {more}"))
