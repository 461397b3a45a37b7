"""``codebutler setup``: tokens and people, checked with Slack before they are saved."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from codebutler.cli import config_files, people
from codebutler.cli.config_files import ALLOWED_USERS, APP_TOKEN, BOT_TOKEN, Layer
from codebutler.cli.output import is_interactive, notice, say
from codebutler.cli.reload import reload_supervisor
from codebutler.cli.surroundings import environment, home
from codebutler.config.load import check_layer
from codebutler.config.merge import put
from codebutler.config.paths import Home
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import SlackSection
from codebutler.errors import ConfigError

if TYPE_CHECKING:
    from codebutler.chat.port import Identity

TOKENS = frozenset({BOT_TOKEN, APP_TOKEN})
API_URL, OPENAI_KEY, KIMI_KEY = "slack.apiBaseUrl", "openai.apiKey", "kimi.apiKey"


def run(
    bot_token: Annotated[str, typer.Option(help="Bot token, xoxb-…")] = "",
    app_token: Annotated[str, typer.Option(help="App-level token with connections:write, xapp-…")] = "",
    allow_user: Annotated[
        list[str] | None,
        typer.Option(help="Who may use the agents: a Slack name, e-mail or user ID; may be repeated."),
    ] = None,
    openai_key: Annotated[str, typer.Option(help="OpenAI API key: voice messages and images.")] = "",
    kimi_key: Annotated[
        str, typer.Option(help="Kimi API key: Kimi Code, the built-in agent, auto-memory.")
    ] = "",
    api_url: Annotated[str, typer.Option(help="Another Slack-compatible server's API.")] = "",
) -> None:
    """Connect to Slack: tokens, and who may use it. Asks for what is missing when run in a terminal."""
    given = {
        BOT_TOKEN: bot_token.strip(),
        APP_TOKEN: app_token.strip(),
        API_URL: api_url,
        OPENAI_KEY: openai_key,
        KIMI_KEY: kimi_key,
    }
    given = {key: value for key, value in given.items() if value}
    where = home().ensure()
    answers = Answers(where)
    users = allow_user or []
    if is_interactive():
        _ask(answers, given, users)
    else:
        _take(answers, given, users)
    resolved = resolve_global(where, environment())
    config_files.warn_of_overrides(where, resolved, answers.saved)
    if not resolved.config.slack.allowed_users:
        notice(people.NOBODY_ALLOWED)
    reload_supervisor()
    say("Next: `codebutler add-repo PATH`, then `codebutler supervise`.")


class Answers:
    """What was answered, written to the home's file; ``saved`` are the keys, in order."""

    def __init__(self, where: Home) -> None:
        self.where = where
        self.saved: dict[str, None] = {}

    def save(self, key: str, value: str | list[str]) -> None:
        """Keep one answer. Raises ConfigError if it is not what its key expects."""
        self.save_all({key: value})

    def save_all(self, answers: Mapping[str, str | list[str]]) -> None:
        """Keep several, or none of them."""
        config_files.change(self.where, partial(_put, answers=answers), "setup")
        self.saved |= dict.fromkeys(answers)


def _put(layer: Layer, answers: Mapping[str, str | list[str]]) -> Layer:
    for key, value in answers.items():
        if isinstance(value, list):
            layer = config_files.allow(layer, value)
        else:
            section, _, name = key.partition(".")
            put(layer, (section, name), value)
    return layer


def _take(answers: Answers, given: Mapping[str, str], users: list[str]) -> None:
    """What the options say: all of it is right, or nothing is written."""
    present = resolve_global(answers.where, environment()).config.slack
    slack = _with(present, given)
    identity, found = asyncio.run(_verify(slack, users))
    answers.save_all({**given, **({ALLOWED_USERS: found} if found else {})})
    say(
        f"Connected to {identity.team or identity.team_id} as {identity.user_id}; saved in {answers.where.config}."
    )


def _ask(answers: Answers, given: Mapping[str, str], users: list[str]) -> None:
    """What no option gave is asked for; without any option, everything. Each answer is saved at once."""
    from codebutler.cli.prompts import Terminal
    from codebutler.cli.wizard import Wizard

    is_scripted = bool(given or users)
    present = resolve_global(answers.where, environment()).config.slack
    slack = _with(present, given)
    if is_scripted and slack.bot_token and slack.app_token and (users or slack.allowed_users):
        _take(answers, given, users)
        return
    if rest := {key: value for key, value in given.items() if key not in TOKENS}:
        answers.save_all(rest)
    tokens = {key: given[key] for key in TOKENS & given.keys()}
    try:
        with Terminal() as terminal:
            wizard = Wizard(terminal, _with(present, rest), answers.save, tokens)
            asyncio.run(wizard.ask(again=not is_scripted, wanted=users))
    except (KeyboardInterrupt, EOFError):
        notice(_stopped(answers))
        raise KeyboardInterrupt from None
    say(f"Saved in {answers.where.config}.")


def _stopped(answers: Answers) -> str:
    if not answers.saved:
        return "Stopped. Nothing was saved."
    kept = ", ".join(answers.saved)
    return f"Stopped. Saved in {answers.where.config}: {kept}. Run `codebutler setup` again to continue."


def _with(present: SlackSection, given: Mapping[str, str]) -> SlackSection:
    """What the supervisor will use. Raises ConfigError if an option is not what its key expects."""
    _check(given)
    return msgspec.structs.replace(
        present,
        bot_token=given.get(BOT_TOKEN) or present.bot_token,
        app_token=given.get(APP_TOKEN) or present.app_token,
        api_base_url=given.get(API_URL) or present.api_base_url,
    )


def _check(given: Mapping[str, str]) -> None:
    check_layer(_put({}, given), "setup")


async def _verify(slack: SlackSection, users: list[str]) -> tuple[Identity, list[str]]:
    """Call auth.test, apps.connections.open and, for each user, users.info; returns who we are and the users' IDs.

    Raises ConfigError, saying which token to pass, if one is absent; ChatAuthError for one that is refused.
    """
    from codebutler.chat.slack.api import SlackApi

    if not slack.bot_token:
        raise ConfigError("no bot token: pass --bot-token xoxb-… (Slack: your app, OAuth & Permissions)")
    if not slack.app_token:
        raise ConfigError("no app-level token: pass --app-token xapp-… (Slack: your app, Basic Information)")
    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        identity = await api.identity()
        await api.open_connection(slack.app_token)
        return identity, [(await people.find(api, user)).id for user in users]
