"""Modals and the home tab, with a Bolt app on the other side, and what happens when it is late or wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.state import Json, MethodError
from tests.clock import ManualClock
from tests.integration.workspace.conftest import client_for
from tests.integration.workspace.deployer import TARGETS, Deployer, button, deploy_form, page


@pytest.fixture
async def app(server: WorkspaceServer, bot: AsyncWebClient) -> AsyncIterator[Deployer]:
    deployer = Deployer(bot)
    handler: Any = AsyncSocketModeHandler(deployer.app, server.app_token)
    handler.client.proxy = None
    await handler.connect_async()
    await server.until(lambda: len(server.hub.connections) == 1)
    yield deployer
    await handler.close_async()


class Person:
    """Somebody at the page: opens the form, fills it in, sends it."""

    def __init__(self, server: WorkspaceServer) -> None:
        self.server = server
        self.user = server.workspace.person

    def stack(self) -> list[Json]:
        modals: list[Json] = self.server.dialogs.views_of(self.user)["modals"]
        return modals

    async def open_form(self) -> str:
        given = {"channel": self.server.channel_id("demo"), "command": "/deploy", "text": ""}
        await self.server.interactions.slash(self.user, given)
        await self.server.until(self.stack)
        return str(self.stack()[-1]["id"])

    async def send(self, view_id: str, reason: str = "it is time", target: str = "staging") -> Json:
        values = {"reason": {"text": reason}, "target": {"name": target}}
        return await self.server.dialogs.submit(self.user, {"view_id": view_id, "values": values})


@pytest.fixture
def visitor(server: WorkspaceServer) -> Person:
    return Person(server)


async def test_a_form_is_filled_in_and_reaches_the_app(
    app: Deployer, visitor: Person, server: WorkspaceServer
) -> None:
    view_id = await visitor.open_form()
    assert await visitor.send(view_id) == {}
    assert visitor.stack() == []
    body = (await server.until(lambda: app.told[1:]))[0]
    assert (body["type"], body["user"]["id"]) == ("view_submission", server.workspace.person.id)
    assert body["view"]["state"]["values"] == {
        "reason": {"text": {"type": "plain_text_input", "value": "it is time"}},
        "target": {"name": {"type": "static_select", "selected_option": TARGETS[0]}},
    }


async def test_a_form_that_lacks_something_never_leaves_the_page(app: Deployer, visitor: Person) -> None:
    view_id = await visitor.open_form()
    told = await visitor.send(view_id, reason="no", target="")
    assert set(told["errors"]) == {"reason", "target"}
    assert len(app.told) == 1
    assert visitor.stack()[0]["state"]["values"]["reason"]["text"]["value"] == "no"


async def test_the_app_finds_fault_with_a_field(app: Deployer, visitor: Person) -> None:
    app.answer = {"response_action": "errors", "errors": {"reason": "Not on a Friday."}}
    view_id = await visitor.open_form()
    assert await visitor.send(view_id) == {"errors": {"reason": "Not on a Friday."}}
    assert [view["id"] for view in visitor.stack()] == [view_id]


async def test_the_app_answers_with_another_view(app: Deployer, visitor: Person) -> None:
    view_id = await visitor.open_form()
    app.answer = {"response_action": "push", "view": page("Sure?")}
    await visitor.send(view_id)
    below, above = visitor.stack()
    assert (below["id"], above["previous_view_id"], above["title"]["text"]) == (view_id, view_id, "Sure?")
    app.answer = {"response_action": "update", "view": page("Done")}
    await visitor.server.dialogs.submit(visitor.user, {"view_id": above["id"]})
    assert [view["title"]["text"] for view in visitor.stack()] == ["Deploy", "Done"]
    app.answer = {"response_action": "clear"}
    await visitor.server.dialogs.submit(visitor.user, {"view_id": above["id"]})
    assert visitor.stack() == []


async def test_an_app_that_is_late_or_wrong_loses_nothing(app: Deployer, visitor: Person) -> None:
    view_id = await visitor.open_form()
    app.silent = True
    with pytest.raises(MethodError, match="operation_timeout"):
        await visitor.send(view_id, reason="typed for an hour")
    assert visitor.stack()[0]["state"]["values"]["reason"]["text"]["value"] == "typed for an hour"
    app.silent, app.answer = False, {"response_action": "update", "view": {"type": "modal"}}
    with pytest.raises(MethodError, match="invalid_arguments"):
        await visitor.send(view_id)
    assert [view["id"] for view in visitor.stack()] == [view_id]


async def test_an_app_that_asked_hears_that_the_form_was_closed(
    app: Deployer, visitor: Person, server: WorkspaceServer
) -> None:
    view_id = await visitor.open_form()
    await server.dialogs.close(visitor.user, {"view_id": view_id})
    body = (await server.until(lambda: app.told[1:]))[0]
    assert (body["type"], body["view"]["id"], body["is_cleared"]) == ("view_closed", view_id, False)
    with pytest.raises(MethodError, match="not_found"):
        await visitor.send(view_id)


async def test_somebody_else_cannot_send_the_form(
    app: Deployer, visitor: Person, server: WorkspaceServer
) -> None:
    view_id = await visitor.open_form()
    stranger = server.add_user("stranger")
    with pytest.raises(MethodError, match="not_found"):
        await server.dialogs.submit(stranger, {"view_id": view_id, "values": {}})
    assert server.dialogs.views_of(stranger)["modals"] == []


async def test_a_trigger_is_worth_one_modal_and_only_the_apps(
    app: Deployer, visitor: Person, server: WorkspaceServer, bot: AsyncWebClient, person: AsyncWebClient
) -> None:
    await visitor.open_form()
    trigger = app.told[0]["trigger_id"]
    for client, used, code in (
        (bot, trigger, "exchanged_trigger_id"),
        (bot, "1.2.made-up", "invalid_trigger_id"),
        (person, trigger, "not_allowed_token_type"),
    ):
        with pytest.raises(SlackApiError) as refused:
            await client.views_open(trigger_id=used, view=deploy_form())
        assert refused.value.response["error"] == code


async def test_a_trigger_of_four_seconds_ago_opens_nothing() -> None:
    clock = ManualClock()
    async with WorkspaceServer(Options(), clock) as server:
        client = client_for(server, server.bot_token)
        trigger = server.context.views.trigger(server.workspace.person.id)
        await clock.advance(4)
        with pytest.raises(SlackApiError) as refused:
            await client.views_open(trigger_id=trigger, view=deploy_form())
        assert refused.value.response["error"] == "expired_trigger_id"


async def test_the_home_tab_is_published_pressed_and_opens_a_modal(
    app: Deployer, visitor: Person, server: WorkspaceServer, bot: AsyncWebClient
) -> None:
    server.dialogs.open_home(visitor.user, {})
    home = await server.until(lambda: server.dialogs.views_of(visitor.user)["home"])
    assert home["blocks"][1]["elements"][0]["action_id"] == "refresh"
    view_id = await visitor.open_form()
    await bot.views_update(view_id=view_id, view={**page("Deploy"), "blocks": [row("more")]})
    await server.dialogs.act(visitor.user, {"view_id": view_id, "action_id": "more"})
    await server.until(lambda: len(visitor.stack()) == 2)
    body = await server.until(lambda: app.told[-1] if len(app.told) == 2 else None)
    assert body["container"] == {"type": "view", "view_id": view_id}
    assert body["actions"][0]["action_id"] == "more"


def row(action_id: str) -> Json:
    return {"type": "actions", "elements": [button(action_id)]}


async def test_a_choice_in_a_message_reaches_the_app_with_its_option(
    app: Deployer, visitor: Person, server: WorkspaceServer, bot: AsyncWebClient
) -> None:
    channel = server.channel_id("demo")
    select = {"type": "static_select", "action_id": "pick", "options": TARGETS}
    blocks = [{"type": "actions", "block_id": "row", "elements": [select]}]
    posted = await bot.chat_postMessage(channel=channel, text="Where?", blocks=blocks)
    given = {"channel": channel, "message_ts": posted["ts"], "action_id": "pick", "value": "production"}
    given["values"] = {"row": {"pick": "production"}}
    await server.interactions.click(visitor.user, given)
    body = (await server.until(lambda: app.told))[0]
    assert body["actions"][0]["selected_option"] == TARGETS[1]
    assert "options" not in body["actions"][0]
    assert body["state"]["values"]["row"]["pick"]["selected_option"] == TARGETS[1]
