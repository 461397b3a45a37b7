"""A Bolt app with a form, a home and a select: what the workspace's tests press and fill in."""

from __future__ import annotations

import re
from typing import Any

from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.workspace.state import Json

TARGETS = [
    {"text": {"type": "plain_text", "text": name}, "value": name.lower()}
    for name in ("Staging", "Production")
]


def deploy_form(title: str = "Deploy") -> Json:
    plain = {"type": "plain_text", "text": title}
    inputs: list[tuple[str, Json]] = [
        ("reason", {"type": "plain_text_input", "action_id": "text", "min_length": 3}),
        ("target", {"type": "static_select", "action_id": "name", "options": TARGETS}),
    ]
    blocks = [
        {"type": "input", "block_id": block_id, "label": plain, "element": element}
        for block_id, element in inputs
    ]
    return {
        "type": "modal",
        "callback_id": "deploy",
        "title": plain,
        "submit": plain,
        "notify_on_close": True,
        "blocks": blocks,
    }


def page(title: str, callback_id: str = "deploy") -> Json:
    text = {"type": "plain_text", "text": title}
    return {
        "type": "modal",
        "callback_id": callback_id,
        "title": text,
        "submit": text,
        "blocks": [{"type": "section", "text": text}],
    }


class Deployer:
    """A Bolt app with a form: what it was told, and what it answers a submission with."""

    def __init__(self, client: AsyncWebClient) -> None:
        self.app = AsyncApp(client=client)
        self.told: list[Json] = []
        self.answer: Json = {}
        self.silent = False
        self.refreshed = 0
        self.app.command("/deploy")(self.command)
        self.app.view("deploy")(self.submitted)
        self.app.view_closed("deploy")(self.closed)
        self.app.action("more")(self.more)
        self.app.action("refresh")(self.refresh)
        self.app.action(re.compile("^pick"))(self.pick)
        self.app.shortcut(re.compile("^pick"))(self.pick)
        self.app.event("app_home_opened")(self.home)
        for event in ("message", re.compile("^(channel|member|reaction|app_mention)")):
            self.app.event(event)(self.other)

    async def command(self, ack: Any, body: Json, client: Any) -> None:
        self.told.append(body)
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=deploy_form())

    async def submitted(self, ack: Any, body: Json) -> None:
        if self.silent:
            return
        self.told.append(body)
        await ack(**self.answer)

    async def closed(self, ack: Any, body: Json) -> None:
        self.told.append(body)
        await ack()

    async def more(self, ack: Any, body: Json, client: Any) -> None:
        self.told.append(body)
        await ack()
        await client.views_push(trigger_id=body["trigger_id"], view=page("More"))

    async def home(self, event: Json, client: Any) -> None:
        await self.publish(client, event["user"])

    async def refresh(self, ack: Any, body: Json, client: Any) -> None:
        await ack()
        self.refreshed += 1
        await self.publish(client, body["user"]["id"])

    async def pick(self, ack: Any, body: Json) -> None:
        self.told.append(body)
        await ack()

    async def other(self, body: Json) -> None:
        del body

    async def publish(self, client: Any, user: str) -> None:
        text = {"type": "mrkdwn", "text": f"*Deployments*: refreshed {self.refreshed} times"}
        blocks = [{"type": "section", "text": text}, {"type": "actions", "elements": [button("refresh")]}]
        await client.views_publish(user_id=user, view={"type": "home", "blocks": blocks})


def button(action_id: str) -> Json:
    return {"type": "button", "action_id": action_id, "text": {"type": "plain_text", "text": action_id}}
