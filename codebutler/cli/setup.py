"""``codebutler setup``: tokens and people, checked with Slack before anything is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from codebutler.cli.output import ask, ask_hidden, is_interactive, notice, say
from codebutler.cli.reload import reload_supervisor
from codebutler.cli.repo_files import encode
from codebutler.cli.surroundings import environment, home
from codebutler.config.load import app_token_fault, bot_token_fault, check_layer, parse_layer
from codebutler.config.merge import put
from codebutler.config.paths import CONFIG_NAME, Home
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import USER_ID, SlackSection
from codebutler.errors import ConfigError

if TYPE_CHECKING:
    from codebutler.slack.port import Identity

API_URL_KEY = ("slack", "apiBaseUrl")
BOT_TOKEN_KEY = ("slack", "botToken")
APP_TOKEN_KEY = ("slack", "appToken")
ALLOWED_USERS_KEY = ("slack", "allowedUsers")
OPENAI_KEY = ("openai", "apiKey")
KIMI_KEY = ("kimi", "apiKey")

Answers = dict[tuple[str, str], Any]


def run(
    bot_token: Annotated[str, typer.Option(help="Bot token, xoxb-…")] = "",
    app_token: Annotated[str, typer.Option(help="App-level token with connections:write, xapp-…")] = "",
    allow_user: Annotated[
        list[str] | None, typer.Option(help="A Slack user ID that may use the agents; may be repeated.")
    ] = None,
    openai_key: Annotated[str, typer.Option(help="OpenAI API key: voice messages and images.")] = "",
    kimi_key: Annotated[
        str, typer.Option(help="Kimi API key: Kimi Code, the built-in agent, auto-memory.")
    ] = "",
    api_url: Annotated[str, typer.Option(help="Another Slack-compatible server's API.")] = "",
) -> None:
    """Connect to Slack: tokens, and who may use it. Asks for what is missing when run in a terminal."""
    answers: Answers = {
        BOT_TOKEN_KEY: bot_token.strip(),
        APP_TOKEN_KEY: app_token.strip(),
        ALLOWED_USERS_KEY: allow_user or [],
        OPENAI_KEY: openai_key,
        KIMI_KEY: kimi_key,
        API_URL_KEY: api_url,
    }
    where = home().ensure()
    present = resolve_global(where, environment()).config.slack
    if is_interactive():
        answers = _wizard(answers, present)
    layer = merged_layer(_file_layer(where), answers)
    slack = effective_slack(answers, present)
    require_tokens(slack)
    identity = asyncio.run(verify(slack))
    with where.open() as directory:
        directory.write(CONFIG_NAME, encode(layer))
    say(f"Connected to {identity.team or identity.team_id} as {identity.user_id}; wrote {where.config}.")
    for key in (key for key, value in answers.items() if value):
        source = resolve_global(where, environment()).provenance[".".join(key)]
        if source != str(where.config):
            notice(f"warning: {source} overrides {'.'.join(key)} of the file")
    if not slack.allowed_users:
        notice("Nobody is allowed yet: run `codebutler setup --allow-user U…` with your Slack user ID.")
    reload_supervisor()
    say("Next: `codebutler add-repo PATH`, then `codebutler supervise`.")


def merged_layer(layer: dict[str, Any], answers: Answers) -> dict[str, Any]:
    """The file's content with the answers put in; users are added to those already allowed.

    Raises ConfigError if an answer is not what its key expects.
    """
    allowed = [*layer.get("slack", {}).get("allowedUsers", []), *answers[ALLOWED_USERS_KEY]]
    for key, value in {**answers, ALLOWED_USERS_KEY: [*dict.fromkeys(allowed)]}.items():
        if value:
            put(layer, key, value)
    check_layer(layer, "setup")
    return layer


def effective_slack(answers: Answers, present: SlackSection) -> SlackSection:
    """What the supervisor will use: the answers over what the file and the environment say by now."""
    return msgspec.structs.replace(
        present,
        bot_token=answers[BOT_TOKEN_KEY] or present.bot_token,
        app_token=answers[APP_TOKEN_KEY] or present.app_token,
        api_base_url=answers[API_URL_KEY] or present.api_base_url,
        allowed_users=(*present.allowed_users, *answers[ALLOWED_USERS_KEY]),
    )


def require_tokens(slack: SlackSection) -> None:
    """Raises ConfigError, saying which token to pass, if one is absent."""
    if not slack.bot_token:
        raise ConfigError("no bot token: pass --bot-token xoxb-… (Slack: your app, OAuth & Permissions)")
    if not slack.app_token:
        raise ConfigError("no app-level token: pass --app-token xapp-… (Slack: your app, Basic Information)")


async def verify(slack: SlackSection) -> Identity:
    """Call auth.test and apps.connections.open. Raises ChatAuthError for a token that is refused."""
    from codebutler.slack.api import SlackApi

    async with SlackApi(slack.bot_token, base_url=slack.api_base_url) as api:
        identity = await api.identity()
        await api.open_connection(slack.app_token)
    return identity


def _file_layer(where: Home) -> dict[str, Any]:
    with where.open() as directory:
        data = directory.read(CONFIG_NAME)
    return parse_layer(data, str(where.config)) if data is not None else {}


def _wizard(answers: Answers, present: SlackSection) -> Answers:
    """Ask for what no option gave; without any option, for everything. Empty keeps what there is."""
    scripted = any(answers.values())
    answers = dict(answers)
    if not answers[BOT_TOKEN_KEY] and not (scripted and present.bot_token):
        from codebutler.slack.manifest import creation_link

        notice("1. Create the Slack app: open this link, choose your workspace, create and install it.")
        notice(f"   {creation_link()}")
        notice("2. The page OAuth & Permissions shows the Bot User OAuth Token.")
        answers[BOT_TOKEN_KEY] = _ask_token("Bot token, xoxb-…", bot_token_fault, present.bot_token)
    if not answers[APP_TOKEN_KEY] and not (scripted and present.app_token):
        notice("3. Basic Information, App-Level Tokens: generate one with the scope connections:write.")
        answers[APP_TOKEN_KEY] = _ask_token("App-level token, xapp-…", app_token_fault, present.app_token)
    if not answers[ALLOWED_USERS_KEY] and not (scripted and present.allowed_users):
        notice("4. Who may use the agents? Their Slack profile, the three dots, Copy member ID.")
        kept = f" (empty keeps {', '.join(present.allowed_users)})" if present.allowed_users else ""
        answers[ALLOWED_USERS_KEY] = _ask_users(f"   Slack user IDs{kept}")
    if not scripted:
        notice("5. Optional keys, empty to skip.")
        for key, what in ((OPENAI_KEY, "OpenAI API key: voice and images"), (KIMI_KEY, "Kimi API key")):
            answers[key] = ask_hidden(f"   {what} (hidden)")
    return answers


def _ask_users(question: str) -> list[str]:
    """User IDs, asked for until each is one."""
    while True:
        users: list[str] = re.findall(r"[^,\s]+", ask(question))
        wrong = next((user for user in users if not re.fullmatch(USER_ID, user)), "")
        if not wrong:
            return users
        notice(f"   expected a Slack user ID such as U0123ABCD, this is {wrong}")


def _ask_token(what: str, fault_of: Callable[[str], str], present: str) -> str:
    """A token of the right kind, asked for until it is one; "" keeps the present one."""
    while True:
        token = ask_hidden(f"   {what} (hidden{', empty keeps the present one' if present else ''})")
        fault = fault_of(token)
        if not fault or (present and not token):
            return token
        notice(f"   {fault}")
