"""Modals and homes: trigger ids, the stack, hashes, what a form must hold, and what Slack refuses."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from codebutler.workspace.blocks import REQUIRED, answer_value, form_problems, state_values
from codebutler.workspace.state import Json, MethodError
from codebutler.workspace.views import MAX_VIEW_BLOCKS, TRIGGER_MEMORY_S, Views
from tests.clock import ManualClock

RED, BLUE = (
    {"text": {"type": "plain_text", "text": name}, "value": name.lower()} for name in ("Red", "Blue")
)


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def asks(element: Json, *, block_id: str = "ask", **more: Any) -> Json:
    return {
        "type": "input",
        "block_id": block_id,
        "label": plain("Tell"),
        "element": {"action_id": "it", **element},
        **more,
    }


def modal(*blocks: Json, **more: Any) -> Json:
    return {"type": "modal", "title": plain("Ask"), "submit": plain("Send"), "blocks": list(blocks), **more}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def views(clock: ManualClock) -> Views:
    numbers = count(1)
    return Views(clock, lambda prefix: f"{prefix}{next(numbers)}")


async def test_a_trigger_opens_one_modal_within_three_seconds(views: Views, clock: ManualClock) -> None:
    trigger = views.trigger("U1")
    await clock.advance(3)
    assert views.open(trigger, modal()).user == "U1"
    with pytest.raises(MethodError, match="exchanged_trigger_id"):
        views.open(trigger, modal())
    late = views.trigger("U1")
    await clock.advance(3.1)
    with pytest.raises(MethodError, match="expired_trigger_id"):
        views.open(late, modal())
    await clock.advance(TRIGGER_MEMORY_S)
    views.trigger("U1")
    with pytest.raises(MethodError, match="invalid_trigger_id"):
        views.open(late, modal())


def test_a_view_that_is_refused_leaves_its_trigger_good(views: Views) -> None:
    trigger = views.trigger("U1")
    with pytest.raises(MethodError, match="invalid_arguments"):
        views.open(trigger, modal(title=plain("x" * 25)))
    assert views.open(trigger, modal())


def test_a_stack_holds_three_and_closes_from_the_top(views: Views) -> None:
    first = views.open(views.trigger("U1"), modal())
    second = views.push(views.trigger("U1", first.id), modal())
    third = views.push_over(second, modal())
    assert (third.root_id, third.previous_id) == (first.id, second.id)
    with pytest.raises(MethodError, match="push_limit_reached"):
        views.push_over(third, modal())
    assert views.close(second) == [third, second]
    assert views.stack("U1") == [first]
    assert views.stack("U2") == []
    with pytest.raises(MethodError, match="not_found"):
        views.push(views.trigger("U2", first.id), modal())


def test_an_old_hash_is_refused_and_what_was_typed_stays(views: Views) -> None:
    text = asks({"type": "plain_text_input"})
    view = views.open(views.trigger("U1"), modal(text, external_id="mine"))
    view.set_answers({"ask": {"it": "half a sent"}})
    old = view.hash
    views.update(views.find("", "mine"), modal(text, {"type": "divider"}, external_id="mine"), old)
    assert view.values["ask"]["it"]["value"] == "half a sent"
    with pytest.raises(MethodError, match="hash_conflict"):
        views.update(view, modal(text), old)
    with pytest.raises(MethodError, match="duplicate_external_id"):
        views.open(views.trigger("U2"), modal(external_id="mine"))
    other = asks({"type": "plain_text_input", "action_id": "other"})
    assert views.update(view, modal(other)).values == {
        "ask": {"other": {"type": "plain_text_input", "value": None}}
    }


def test_a_home_belongs_to_one_person(views: Views) -> None:
    home = views.publish("U1", {"type": "home", "blocks": []})
    assert views.home("U1") is home
    assert views.home("U2") is None
    with pytest.raises(MethodError, match="not_found"):
        views.find_for("U2", home.id)
    with pytest.raises(MethodError, match="hash_conflict"):
        views.publish("U1", {"type": "home", "blocks": []}, "0.0")


@pytest.mark.parametrize(
    "given",
    [
        {"type": "home", "blocks": []},
        modal(title={}),
        modal(submit=plain("x" * 25)),
        {"type": "modal", "title": plain("No blocks")},
        {"type": "modal", "title": plain("No submit"), "blocks": [asks({"type": "plain_text_input"})]},
        modal(callback_id="x" * 256),
        modal(private_metadata="x" * 3001),
        modal(*[{"type": "divider"}] * (MAX_VIEW_BLOCKS + 1)),
        modal({"type": "input", "label": plain("No element")}),
        modal(asks({"type": "overflow", "options": [RED] * 6})),
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_view_that_slack_would_refuse(views: Views, given: Json) -> None:
    with pytest.raises(MethodError, match="invalid_"):
        views.open(views.trigger("U1"), given)


def test_a_view_may_not_be_huge(views: Views) -> None:
    with pytest.raises(MethodError, match="view_too_large"):
        views.open(views.trigger("U1"), modal(*[{"type": "divider", "block_id": "x" * 5000}] * 60))


@pytest.mark.parametrize(
    ("element", "value", "told"),
    [
        ({"type": "plain_text_input"}, "hi", {"value": "hi"}),
        ({"type": "plain_text_input"}, "", {"value": None}),
        ({"type": "static_select", "options": [RED, BLUE]}, "blue", {"selected_option": BLUE}),
        (
            {"type": "static_select", "option_groups": [{"label": plain("G"), "options": [RED]}]},
            "red",
            {"selected_option": RED},
        ),
        ({"type": "checkboxes", "options": [RED, BLUE]}, ["red", "blue"], {"selected_options": [RED, BLUE]}),
        ({"type": "radio_buttons", "options": [RED]}, "red", {"selected_option": RED}),
        ({"type": "multi_static_select", "options": [RED]}, [], {"selected_options": []}),
        ({"type": "datepicker"}, "2026-01-31", {"selected_date": "2026-01-31"}),
        ({"type": "users_select"}, "U1", {"selected_user": "U1"}),
        ({"type": "external_select"}, RED, {"selected_option": RED}),
    ],
)
def test_an_answer_in_slacks_form(element: Json, value: object, told: Json) -> None:
    values = state_values([asks(element)], {"ask": {"it": value}})
    assert values == {"ask": {"it": {"type": element["type"], **told}}}


def test_what_nobody_touched_is_as_it_began() -> None:
    blocks = [
        asks({"type": "plain_text_input", "initial_value": "begun"}, block_id="text"),
        asks({"type": "checkboxes", "options": [RED], "initial_options": [RED]}, block_id="boxes"),
        {"type": "actions", "block_id": "row", "elements": [{"type": "button", "action_id": "go"}]},
    ]
    values = state_values(blocks, {})
    assert values["text"]["it"]["value"] == "begun"
    assert values["boxes"]["it"]["selected_options"] == [RED]
    assert "row" not in values


def test_an_option_that_is_not_offered_is_refused() -> None:
    with pytest.raises(MethodError, match="invalid_arguments"):
        answer_value({"type": "static_select", "options": [RED]}, "green")


@pytest.mark.parametrize(
    ("element", "value", "problem"),
    [
        ({"type": "plain_text_input"}, "", REQUIRED),
        ({"type": "plain_text_input", "min_length": 3}, "ab", "at least 3"),
        ({"type": "plain_text_input", "max_length": 3}, "abcd", "at most 3"),
        ({"type": "plain_text_input", "max_length": 3}, "abc", ""),
        ({"type": "checkboxes", "options": [RED]}, [], REQUIRED),
        ({"type": "number_input", "is_decimal_allowed": False}, "1.5", "whole number"),
        ({"type": "number_input", "is_decimal_allowed": True, "max_value": "1"}, "1.5", "1 or less"),
        ({"type": "number_input", "is_decimal_allowed": True, "min_value": "2"}, "1.5", "2 or more"),
        ({"type": "number_input", "is_decimal_allowed": True}, "many", "a number"),
        ({"type": "email_text_input"}, "me", "email"),
        ({"type": "url_text_input"}, "javascript:alert(1)", "https://"),
    ],
)
def test_what_keeps_a_form_from_being_sent(element: Json, value: object, problem: str) -> None:
    blocks = [asks(element)]
    found = form_problems(blocks, state_values(blocks, {"ask": {"it": value}}))
    assert problem in found.get("ask", "")
    assert bool(found) == bool(problem)


def test_an_optional_field_may_stay_empty() -> None:
    blocks = [asks({"type": "plain_text_input"}, optional=True)]
    assert form_problems(blocks, state_values(blocks, {})) == {}
