"""What is called next: by value, in order, within the limits; and what is left out because it is pointless."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.chat.delivery.planner import Buckets, CallPlan, Line, State, WaitingCall, plan
from codebutler.chat.port import Call, Limit, Limits
from codebutler.chat.slack.api import SLACK_LIMITS
from codebutler.domain.model import Value

SMALL = Limits(
    workspace={"post": Limit(120, 4), "update": Limit(60, 3), "react": Limit(60, 4), "unreact": Limit(20, 4)},
    channel={"post": Limit(60, 2)},
)


def waiting(
    call: Call, value: Value, *line: str, number: int = 1, from_s: float = 0.0, is_lasting: bool = False
) -> WaitingCall:
    return WaitingCall(
        call=call,
        channel=line[0],
        line=line,
        value=value,
        number=number,
        from_s=from_s,
        is_lasting=is_lasting,
    )


def says(channel: str, thread: str, number: int, value: Value = "answer") -> WaitingCall:
    return waiting("post", value, channel, "say", thread, number=number)


def planned(lines: list[list[WaitingCall]], limits: Limits = SMALL, **state: object) -> CallPlan:
    return plan(lines, Buckets(limits), State(0.0, **state))  # type: ignore[arg-type]  # its own fields


def test_what_is_dearer_goes_first_however_young_it_is() -> None:
    progress = says("C1", "1", 1, "progress")
    notice, answer = says("C2", "2", 2, "notice"), says("C3", "3", 3)
    assert planned([[progress], [notice], [answer]], SLACK_LIMITS).begin == (answer, notice, progress)


def test_what_is_cheap_leaves_a_part_of_the_burst() -> None:
    edits = [waiting("update", "progress", f"C{number}", "edit", "1", number=number) for number in range(12)]
    assert len(planned([[edit] for edit in edits], SLACK_LIMITS).begin) == 8


def test_posts_of_progress_leave_most_of_the_burst_to_the_answers_that_follow() -> None:
    progress = [[says(f"C{number}", "1", number, "progress")] for number in range(60)]
    assert len(planned(progress, SLACK_LIMITS).begin) == 10
    answers = [[says(f"C{number}", "1", number)] for number in range(60)]
    assert len(planned(answers, SLACK_LIMITS).begin) == 50


def test_an_answer_does_not_wait_for_progress_before_it_that_was_not_sent() -> None:
    progress, answer = says("C1", "1", 1, "progress"), says("C1", "1", 2)
    assert planned([[progress, answer]]).begin == (answer,)
    progress.is_busy = True
    assert planned([[progress, answer]]).begin == ()


def test_a_notice_before_an_answer_goes_as_soon_as_that_would() -> None:
    others = [[says(f"C{number}", "1", number, "notice")] for number in range(1, 9)]
    mine = [says("C9", "1", 10, "notice"), says("C9", "1", 11)]
    assert planned([*others, mine]).begin[0] is mine[0]


def test_channels_take_turns() -> None:
    one, two = says("C1", "1", 1), says("C2", "1", 2)
    assert planned([[one], [two]], served={("post", "C1"): 7}).begin == (two, one)


def test_a_conversation_waits_for_what_is_under_way_in_it_and_another_does_not() -> None:
    busy, next_one, other = says("C1", "1", 1), says("C1", "1", 2), says("C1", "2", 3)
    busy.is_busy = True
    assert planned([[busy, next_one], [other]]).begin == (other,)


def test_a_mark_that_is_as_it_shall_be_is_left_out() -> None:
    gone = waiting("unreact", "sign", "C1", "mark", "1.1", "working")
    there = waiting("react", "outcome", "C1", "mark", "1.1", "failed")
    decided = planned([[gone], [there]], marks={gone.line: False, there.line: True})
    assert decided.drop == (gone, there)


def test_a_sign_that_would_come_late_is_left_out_and_an_outcome_is_not() -> None:
    lines = [[waiting("react", "sign", f"C{number}", "mark", "1", "working")] for number in range(9)]
    ends = [[waiting("react", "outcome", f"C{number}", "mark", "1", "failed")] for number in range(9)]
    decided = planned([*lines, *ends])
    assert len(decided.begin) == 4
    assert {each.value for each in decided.begin} == {"outcome"}
    assert {each.value for each in decided.drop} == {"sign"}


def test_no_sign_is_set_while_many_wait_to_be_taken_away() -> None:
    due = [
        [waiting("unreact", "sign", "C1", "mark", f"{number}", "working", from_s=9.0)] for number in range(2)
    ]
    sign = waiting("react", "sign", "C2", "mark", "1", "working")
    assert planned([*due, [sign]]).drop == (sign,)
    assert planned([due[0], [sign]]).begin == (sign,)


def test_no_message_stands_without_a_mark_between_two() -> None:
    old = waiting("unreact", "sign", "C1", "mark", "1.1", "working")
    new = waiting("react", "outcome", "C1", "mark", "1.1", "failed")
    assert planned([[old], [new]]).begin == (new,)


def test_nothing_but_reading_goes_on_without_a_token() -> None:
    answer = says("C1", "1", 1)
    read = waiting("history", "progress", "C1", "claim", "1")
    read.needs_token = False
    assert planned([[answer], [read]], has_token=False) == CallPlan((read,), (), None)


def test_a_closed_channel_is_tried_by_one_call_once_its_time_has_come() -> None:
    lines = [
        [waiting("post", "answer", "C1", "say", f"{number}", number=number, is_lasting=True)]
        for number in range(3)
    ]
    assert planned(lines, closed={"C1": 60.0}) == CallPlan((), (), 60.0)
    assert planned(lines, closed={"C1": 0.0}).begin == (lines[0][0],)


def test_planning_spends_nothing_of_the_buckets() -> None:
    buckets = Buckets(SMALL)
    assert len(plan([[says("C1", "1", 1)], [says("C1", "2", 2)]], buckets, State(0.0)).begin) == 2
    assert buckets == Buckets(SMALL)


class World:
    """Calls that take a while and may fail, on a clock of its own; what is planned is held to the rules."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.buckets = Buckets(SMALL)
        self.lines: dict[Line, deque[WaitingCall]] = {}
        self.ends: list[tuple[float, WaitingCall]] = []
        self.begun: list[tuple[float, WaitingCall]] = []
        self.done: list[WaitingCall] = []
        self.dropped: list[WaitingCall] = []
        self.marks: dict[Line, bool] = {}

    def enter(self, each: WaitingCall) -> None:
        self.lines.setdefault(each.line, deque()).append(each)

    def leave(self, each: WaitingCall) -> None:
        self.lines[each.line].remove(each)
        if not self.lines[each.line]:
            del self.lines[each.line]

    def step(self) -> float | None:
        """Plan and begin; returns when to come back."""
        decided = plan(self.lines.values(), self.buckets, State(self.now_s, marks=self.marks))
        for each in decided.drop:
            assert each.value == "sign" or self.marks.get(each.line) is (each.call == "react")
            self.dropped.append(each)
            self.leave(each)
        for each in decided.begin:
            assert not each.is_busy
            assert each is next(
                (one for one in self.lines[each.line] if one.value != "progress"), self.lines[each.line][0]
            )
            each.is_busy = True
            self.buckets.take(each.call, each.channel, self.now_s)
            self.begun.append((self.now_s, each))
            self.ends.append((self.now_s + self.rng.choice((0.0, 0.1, 3.0)), each))
        if not decided.drop:
            self._no_answer_waits()
        later = [decided.until_s] if decided.until_s is not None else []
        return min((*later, *(end_s for end_s, _ in self.ends)), default=None)

    def _no_answer_waits(self) -> None:
        for line in self.lines.values():
            first = next((one for one in line if one.value != "progress"), line[0])
            if (
                not any(one.is_busy for one in line)
                and first.value == "answer"
                and first.from_s <= self.now_s
            ):
                assert self.buckets.wait_s(first.call, first.channel, self.now_s) > 0

    def end(self) -> None:
        """What has taken its time succeeds, or has to wait and is called again."""
        for end_s, each in [end for end in self.ends if end[0] <= self.now_s]:
            self.ends.remove((end_s, each))
            each.is_busy = False
            if self.rng.random() < 0.2:
                each.from_s = self.now_s + self.rng.uniform(0, 5)
                if self.rng.random() < 0.3:
                    self.buckets.pause(each.call, each.channel, self.rng.uniform(0, 5), self.now_s)
                continue
            self.done.append(each)
            self.leave(each)
            if each.call in ("react", "unreact"):
                self.marks[each.line] = each.call == "react"


def some_waiting(rng: Random, number: int) -> WaitingCall:
    channel, ts = f"C{rng.randrange(3)}", f"{rng.randrange(3)}"
    kind = rng.randrange(4)
    if kind <= 1:
        return says(channel, ts, number, rng.choice(("answer", "notice", "progress")))
    if kind == 2:
        return waiting(
            "update", rng.choice(("answer", "progress")), channel, "edit", f"{number}", number=number
        )
    name = rng.choice(("working", "failed"))
    call: Call = rng.choice(("react", "unreact"))
    value: Value = "outcome" if name == "failed" else "sign"
    return waiting(call, value, channel, "mark", ts, name, number=number)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 100_000), st.integers(1, 60))
def test_whatever_waits_and_whatever_fails_the_rules_hold(seed: int, count: int) -> None:
    rng = Random(seed)
    world = World(rng)
    coming = deque(some_waiting(rng, number) for number in range(count))
    entered = len(coming)
    rounds = 0
    while coming or world.lines:
        for _ in range(rng.randrange(4)):
            if coming:
                world.enter(coming.popleft())
        world.end()
        again_s = world.step()
        if again_s is None or coming:
            again_s = world.now_s + rng.uniform(0, 2)
        world.now_s = max(world.now_s + 1e-6, again_s)
        rounds += 1
        assert rounds < 5_000, "what waits is never called"
    assert len(world.done) + len(world.dropped) == entered
    _in_order(world)
    _within(world)


def _in_order(world: World) -> None:
    order: dict[Line, int] = {}
    for each in (one for one in world.done if one.value != "progress"):
        assert order.get(each.line, -1) < each.number
        order[each.line] = each.number


def _within(world: World) -> None:
    for call, limit in SMALL.workspace.items():
        times = [at_s for at_s, each in world.begun if each.call == call]
        for start_s in times:
            assert sum(start_s <= at_s < start_s + 59.99 for at_s in times) <= limit.per_minute + limit.burst


@pytest.mark.parametrize("size", [3_000])
def test_planning_for_thousands_looks_at_each_once(size: int) -> None:
    """Worker's windows allow so many: what is begun is no more than the limits allow, whatever waits."""
    lines = [[says(f"C{number % 50}", f"{number}", number)] for number in range(size)]
    decided = planned(lines, SLACK_LIMITS)
    assert len(decided.begin) == 50
    assert decided.until_s is not None
