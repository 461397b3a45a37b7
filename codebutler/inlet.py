"""The way of events in, put together: the door, the router behind it, and the connection that brings them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from codebutler.apphome.publisher import AppHome
from codebutler.apphome.vain import Vain
from codebutler.delivery.channels import Channels
from codebutler.direct.door import DirectDoor
from codebutler.direct.router import DirectRouter, Known
from codebutler.errors import RegistryError
from codebutler.intake.entry import EventRouter
from codebutler.intake.intake import Intake
from codebutler.parent import Parent
from codebutler.parts import Parts, Surroundings
from codebutler.routing.holding import HoldingRouter
from codebutler.slack.api import SlackApi
from codebutler.slack.catchup import CatchUp, Shelf
from codebutler.slack.connection import Care, SlackConnection
from codebutler.slack.echo import Echo
from codebutler.slack.homecoming import Homecoming
from codebutler.slack.interactive import FormAsked, PressedInVain
from codebutler.slack.payloads import HomeOpened, Notice
from codebutler.slack.port import ChannelMoved
from codebutler.slack.reasons import Reasons
from codebutler.supervisor.supervisor import Supervisor


@dataclass(frozen=True)
class Inlet:
    """Where what Slack tells goes."""

    intake: Intake
    router: HoldingRouter
    apphome: AppHome
    reasons: Reasons
    vain: Vain


def door(
    around: Surroundings, parts: Parts, parent: Parent, own_words: EventRouter, apphome: AppHome
) -> tuple[Intake, HoldingRouter]:
    """The door for events, and the router behind it."""
    known = Known(parts.book, parent.repos, apphome.cards, partial(_down, parts.supervisor), parts.services)
    direct = DirectRouter(own_words, known, parts.sender, parts.journal, parts.tasks, around.clock)
    router = HoldingRouter(direct)
    intake = Intake(
        repos=parent.repos,
        journal=parts.journal,
        router=router,
        refusals=parts.services,
        clock=around.clock,
    )
    intake.awaits = apphome.awaits
    intake.direct = DirectDoor(parts.book, parent.repos, intake)
    return intake, router


def connect(
    around: Surroundings, api: SlackApi, parts: Parts, parent: Parent, inlet: Inlet
) -> SlackConnection:
    """Our presence in the workspace, with what sees to it that no event is missed."""
    clock, rng = around.clock, random.Random()  # noqa: S311 - back-off
    shelf = Shelf(intake=inlet.intake, journal=parts.journal, router=inlet.router)
    catch_up = CatchUp(parts.sender.background, shelf, api.clock, rng, parent.listened)
    echo = Echo(parts.sender, parts.journal, catch_up.channels, clock)
    homecoming = Homecoming(
        parts.sender,
        parts.journal,
        clock,
        catch_up.channels,
        lambda: catch_up.is_busy or parts.supervisor.is_starting,
    )
    parts.services.on_interrupted = homecoming.interrupted
    care = Care(catch_up, echo, homecoming, partial(_heed, inlet, parts.channels))
    app_token = around.resolved.config.slack.app_token
    return SlackConnection(api, app_token, inlet.intake, care, clock, rng)


def _heed(inlet: Inlet, channels: Channels, notice: Notice) -> None:
    match notice:
        case HomeOpened(user=user):
            inlet.apphome.opened(user)
        case PressedInVain():
            inlet.vain.pressed(notice)
        case FormAsked():
            inlet.reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)


def _down(supervisor: Supervisor, repo: str) -> str:
    try:
        return supervisor.down(repo)
    except RegistryError:
        return ""  # it is being removed just now
