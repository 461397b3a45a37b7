"""Buttons and forms to events: pressed in a message, pressed in App Home, sent from a form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codebutler.chat.layout import Placed, ReasonForm, packed
from codebutler.chat.payload import Ignored, PayloadError
from codebutler.chat.slack.forms import FormAsked, interaction, reason_view
from codebutler.domain.model import ButtonClicked
from tests.events import clicked

PLACE = Placed(channel="C1", message="5.4", thread="5.1", value="r1")


def click(**changes: Any) -> ButtonClicked | FormAsked | Ignored:
    payload: dict[str, Any] = {
        "type": "block_actions",
        "user": {"id": "U1"},
        "container": {"type": "message", "message_ts": "5.4", "channel_id": "C1", "thread_ts": "5.1"},
        "channel": {"id": "C1", "name": "x"},
        "message": {"bot_id": "BBOT", "ts": "5.4", "thread_ts": "5.1"},
        "actions": [{"action_id": "codebutler.stop", "value": "t1", "type": "button", "action_ts": "6.5"}],
    }
    return interaction(payload | changes)


def test_click() -> None:
    assert click() == clicked(
        channel="C1",
        user="U1",
        message="5.4",
        action_id="codebutler.stop",
        value="t1",
        press="6.5",
        thread="5.1",
    )


def test_a_click_brings_the_name_of_who_clicked() -> None:
    named = click(user={"id": "U1", "username": "ana", "name": "ana\0"})
    assert isinstance(named, ButtonClicked)
    assert named.user_name == "ana"
    odd = click(user={"id": "U1", "name": 7})
    assert isinstance(odd, ButtonClicked)
    assert odd.user_name == ""


def test_choice_in_a_menu_is_its_value() -> None:
    chosen = click(actions=[{"action_id": "a", "selected_option": {"value": "v"}, "action_ts": "6.5"}])
    assert isinstance(chosen, ButtonClicked)
    assert chosen.value == "v"


@pytest.mark.parametrize("kind", ["view_closed", "shortcut", None])
def test_other_interactions_are_ignored(kind: str | None) -> None:
    assert isinstance(click(type=kind), Ignored)


@pytest.mark.parametrize("changes", [{"actions": []}, {"actions": None}, {"user": "U1"}, {"actions": ["x"]}])
def test_malformed_click(changes: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        click(**changes)


def from_home(action_id: str = "codebutler.allow", value: str = "", **changes: Any) -> object:
    action = {"action_id": action_id, "value": value or packed(PLACE), "type": "button", "action_ts": "6.5"}
    payload: dict[str, Any] = {
        "type": "block_actions",
        "user": {"id": "U1", "name": "ana"},
        "container": {"type": "view", "view_id": "V1"},
        "trigger_id": "1.2.x",
        "view": {"id": "V1", "type": "home"},
        "actions": [action],
    }
    return interaction(payload | changes)


def test_a_button_in_app_home_is_the_one_in_the_thread() -> None:
    pressed = from_home()
    assert pressed == clicked(
        channel="C1",
        user="U1",
        message="5.4",
        action_id="codebutler.allow",
        value="r1",
        press="6.5",
        thread="5.1",
        user_name="ana",
    )


@pytest.mark.parametrize(
    "value",
    [
        "r1",
        "{}",
        "[]",
        '{"c":"C1","m":"yesterday","v":"r1"}',
        '{"c":1,"m":"5.4","v":"r1"}',
        '{"c":"C1","m":"5.4","v":"r1","t":"../x"}',
    ],
)
def test_a_button_that_names_no_message_is_malformed(value: str) -> None:
    with pytest.raises(PayloadError):
        from_home(value=value)


def test_a_button_without_a_value_outside_a_channel_is_not_ours() -> None:
    action = {"action_id": "a", "type": "button", "action_ts": "6.5"}
    assert isinstance(from_home(actions=[action]), Ignored)


@pytest.mark.parametrize("press", [click, from_home])
def test_a_wish_to_give_a_reason_comes_with_the_right_to_open_a_form(press: Any) -> None:
    value = "r1" if press is click else packed(PLACE)
    action = {"action_id": "codebutler.deny_reason", "value": value, "action_ts": "6.5"}
    wish = press(actions=[action], trigger_id="1.2.x")
    assert isinstance(wish, FormAsked)
    assert wish.trigger_id == "1.2.x"
    assert (wish.click.channel, wish.click.message, wish.click.value) == ("C1", "5.4", "r1")


def sent(words: object = "the disk is precious", **changes: Any) -> object:
    form = reason_view(ReasonForm(PLACE))
    values = {"reason": {"codebutler.reason": {"type": "plain_text_input", "value": words}}}
    view = {**form, "id": "V7", "state": {"values": values}, **changes}
    return interaction({"type": "view_submission", "user": {"id": "U1", "name": "ana"}, "view": view})


def test_a_form_that_is_sent_is_a_no_with_words() -> None:
    first = sent()
    assert first == clicked(
        channel="C1",
        user="U1",
        message="5.4",
        action_id="codebutler.deny",
        value="r1",
        press="V7",
        thread="5.1",
        user_name="ana",
        words="the disk is precious",
    )


def test_a_form_delivered_twice_is_one_event() -> None:
    first, again = sent(), sent()
    assert isinstance(first, ButtonClicked)
    assert isinstance(again, ButtonClicked)
    assert first.key == again.key


def test_nothing_written_is_a_plain_no_and_too_much_is_cut() -> None:
    empty, long = sent(None), sent("x" * 5000)
    assert isinstance(empty, ButtonClicked)
    assert empty.words == ""
    assert isinstance(long, ButtonClicked)
    assert len(long.words) == 1000


@pytest.mark.parametrize(
    "changes", [{"private_metadata": "x"}, {"private_metadata": ""}, {"private_metadata": None}, {"id": None}]
)
def test_a_form_that_does_not_say_what_it_is_about_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        sent(**changes)


def test_words_of_another_type_are_malformed() -> None:
    with pytest.raises(PayloadError):
        sent(["x"])


def test_somebody_elses_form_is_not_ours() -> None:
    assert isinstance(sent(callback_id="other"), Ignored)


def test_ticking_a_box_decides_nothing_and_the_button_beside_it_brings_what_is_ticked() -> None:
    ticked = [{"value": "r1:0"}, {"value": "r1:2"}, {"value": 7}, "x"]
    boxes = {"r1": {"codebutler.pick": {"type": "checkboxes", "selected_options": ticked[:2]}}}
    action = {"action_id": "codebutler.pick", "action_ts": "6.5", "selected_options": ticked[:2]}
    assert isinstance(click(actions=[action], state={"values": boxes}), Ignored)
    done = click(
        state={"values": {**boxes, "r2": "x", "r3": {"codebutler.pick": {"selected_options": None}}}}
    )
    assert isinstance(done, ButtonClicked)
    assert done.picked == ("r1:0", "r1:2")


def test_a_plan_is_kept_at_not_denied() -> None:
    form = reason_view(ReasonForm(Placed(channel="C1", message="5.4", value="r1:plan")))
    assert form["submit"]["text"] == "Keep planning"
    assert json.loads(form["private_metadata"]) == {"c": "C1", "m": "5.4", "v": "r1:plan", "t": None}
    for words in (form["title"], form["submit"], form["close"]):
        assert len(words["text"]) <= 24
