"""Which calls need more than one person."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.schema import ApprovalsSection
from codebutler.domain.model import OPERATOR
from codebutler_worker.conversation.approvals import approvals_needed, is_met, needed_for, objection_to

QUORUM = {"git push": 2, "push --force": 3, "Write prod.env": 2, "": 9}


@pytest.mark.parametrize(
    ("tool", "called_with", "needed"),
    [
        ("Bash", {"command": "git push"}, 2),
        ("Bash", {"command": "cd x && git -C /repo  push origin"}, 2),
        ("Bash", {"command": "gi\\t p'u's\"h\""}, 2),
        ("Bash", {"command": "GIT PUSH"}, 2),
        ("Bash", {"command": "git\npush"}, 2),
        ("Bash", {"command": "git push --force"}, 3),
        ("Bash", {"command": "git pull"}, 1),
        ("Bash", {"command": "push git"}, 1),
        ("Bash", {"command": "git pushes"}, 1),
        ("Write", {"file_path": "/repo/prod.env", "content": ""}, 2),
        ("Task", {"steps": [{"do": ["git", {"then": "push"}]}]}, 2),
        ("Bash", {}, 1),
    ],
)
def test_needed_for(tool: str, called_with: dict[str, Any], needed: int) -> None:
    assert needed_for(QUORUM, tool, called_with) == needed


def test_without_patterns_one_person_is_enough() -> None:
    assert needed_for({}, "Bash", {"command": "git push"}) == 1


PEOPLE = ("U0ANA", "U0BEN", "U0CARL", "U0DORA")
users = st.sampled_from([*PEOPLE, OPERATOR])


@given(
    people=st.integers(1, 4),
    votes=st.lists(users, max_size=8),
    requesters=st.frozensets(users, min_size=1),
    at_terminal=st.sampled_from(PEOPLE),
    is_named=st.booleans(),
    requester_votes=st.booleans(),
)
def test_a_quorum_is_met_by_that_many_different_people_whoever_works_at_the_terminal(
    people: int,
    votes: list[str],
    requesters: frozenset[str],
    at_terminal: str,
    is_named: bool,
    requester_votes: bool,
) -> None:
    section = ApprovalsSection(
        quorum={"push": people}, operator=at_terminal if is_named else "", requester_votes=requester_votes
    )
    needed = approvals_needed(section, requesters, "Bash", {"command": "push"})
    counted: list[str] = []
    for user in votes:
        if not objection_to(section, user, needed=needed, requesters=requesters, voted=counted):
            counted.append(user)
    if not is_met(section, votes, needed=needed, requesters=requesters):
        return
    really = {at_terminal if user == OPERATOR else user for user in counted}
    asked = {at_terminal if user == OPERATOR else user for user in requesters}
    assert len(really) >= people
    if people > 1 and not requester_votes:
        assert len(really - asked) >= people


@given(st.integers(2, 4), st.permutations(PEOPLE), st.booleans())
def test_enough_others_in_slack_always_meet_it(people: int, voters: list[str], is_named: bool) -> None:
    section = ApprovalsSection(quorum={"push": people}, operator="U0EVE" if is_named else "")
    needed = approvals_needed(section, ["U0EVE"], "Bash", {"command": "push"})
    assert needed == people
    assert is_met(section, voters[:people], needed=needed, requesters=["U0EVE"])
    assert not is_met(section, voters[: people - 1], needed=needed, requesters=["U0EVE"])


@pytest.mark.parametrize(
    ("user", "voted", "section", "why"),
    [
        ("U0ANA", (), ApprovalsSection(), "asked"),
        ("U0ANA", (), ApprovalsSection(requester_votes=True), ""),
        ("U0BEN", ("U0BEN",), ApprovalsSection(), "again"),
        (OPERATOR, (), ApprovalsSection(), "unnamed"),
        (OPERATOR, (), ApprovalsSection(operator="U0BEN"), ""),
        (OPERATOR, ("U0BEN",), ApprovalsSection(operator="U0BEN"), "again"),
        ("U0BEN", (OPERATOR,), ApprovalsSection(operator="U0BEN"), "again"),
        (OPERATOR, (), ApprovalsSection(operator="U0ANA"), "asked"),
    ],
)
def test_why_an_approval_does_not_count(
    user: str, voted: tuple[str, ...], section: ApprovalsSection, why: str
) -> None:
    assert objection_to(section, user, needed=2, requesters=["U0ANA"], voted=voted) == why


def test_where_one_is_enough_the_terminal_and_whoever_asked_may_allow() -> None:
    for user in ("U0ANA", OPERATOR):
        assert objection_to(ApprovalsSection(), user, needed=1, requesters=["U0ANA"], voted=()) == ""


def test_where_the_terminal_asked_and_could_be_any_voter_one_more_is_needed() -> None:
    asked = ("Bash", {"command": "git push"})
    quorum = {"git push": 2}
    assert approvals_needed(ApprovalsSection(quorum=quorum), [OPERATOR], *asked) == 3
    assert approvals_needed(ApprovalsSection(quorum=quorum, operator="U0BEN"), [OPERATOR], *asked) == 2
    assert approvals_needed(ApprovalsSection(quorum=quorum, requester_votes=True), [OPERATOR], *asked) == 2
    assert approvals_needed(ApprovalsSection(), [OPERATOR], *asked) == 1
