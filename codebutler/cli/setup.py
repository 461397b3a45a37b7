"""`codebutler setup`: tokens and people, checked with the chat before they are saved; and the Slack app's manifest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from codebutler.cli import config_files, telegram
from codebutler.cli.config_files import ALLOWED_USERS, APP_TOKEN, BOT_TOKEN, Layer
from codebutler.cli.context import home, in_force, reload_supervisor
from codebutler.cli.output import is_interactive, notice, print_json, say
from codebutler.cli.prompts import PromptTerminal, ask
from codebutler.cli.slack import NOBODY_ALLOWED, find_person, slack_api
from codebutler.config.channels import served_chats
from codebutler.config.load import check_layer
from codebutler.config.merge import put
from codebutler.config.schema import SlackSection
from codebutler.domain.errors import ConfigError

if TYPE_CHECKING:
    from codebutler.chat.port import Identity


TOKENS = frozenset({BOT_TOKEN, APP_TOKEN})
WHICH = {"slack": ("slack",), "telegram": ("telegram",), "both": ("slack", "telegram")}
Answer = str | Sequence[str] | Sequence[int]
API_URL, OPENAI_KEY, KIMI_KEY = "slack.apiBaseUrl", "openai.apiKey", "kimi.apiKey"


def setup(  # noqa: PLR0913 - an argument for each option
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
    telegram_token: Annotated[str, typer.Option(help="Token of a Telegram bot, from @BotFather.")] = "",
    telegram_user: Annotated[
        list[str] | None,
        typer.Option(help="Who may use the agents in Telegram: a person's number; may be repeated."),
    ] = None,
    telegram_api_url: Annotated[str, typer.Option(help="Another Bot API server.")] = "",
) -> None:
    """Connect to Slack, Telegram or both: tokens, and who may use it. Asks for what is missing when run in a
    terminal."""
    given = {
        BOT_TOKEN: bot_token.strip(),
        APP_TOKEN: app_token.strip(),
        API_URL: api_url,
        OPENAI_KEY: openai_key,
        KIMI_KEY: kimi_key,
    }
    given = {key: value for key, value in given.items() if value}
    in_telegram: dict[str, str | list[int]] = {
        telegram.TOKEN: telegram_token.strip(),
        telegram.USERS: telegram.people_in(telegram_user or ()),
        telegram.API_URL: telegram_api_url,
    }
    in_telegram = {key: value for key, value in in_telegram.items() if value}
    home().ensure()
    answers = Answers()
    users = allow_user or []
    chats = _chats(is_slack=bool(given or users), is_telegram=bool(in_telegram))
    if in_telegram:
        _take_telegram(answers, in_telegram)
    if "slack" in chats:
        (_ask if is_interactive() else _take)(answers, given, users)
    if "telegram" in chats and not in_telegram:
        _ask_telegram(answers)
    resolved = in_force()
    config_files.warn_of_overrides(resolved, answers.saved)
    if not resolved.config.slack.allowed_users and not resolved.config.telegram.allowed_users:
        notice(NOBODY_ALLOWED)
    reload_supervisor()
    is_telegram = served_chats(resolved.config) == ("Telegram",)
    example = "codebutler add-repo PATH --telegram CHAT" if is_telegram else "codebutler add-repo PATH"
    say(f"Next: `{example}`, then `codebutler supervise`.")


def _chats(*, is_slack: bool, is_telegram: bool) -> tuple[str, ...]:
    """Those that are set up now: of the options that were given, else as somebody at a terminal says."""
    if is_slack or is_telegram or not is_interactive():
        return (*(("slack",) if is_slack or not is_telegram else ()), *(("telegram",) if is_telegram else ()))
    present = served_chats(in_force().config)
    usual = "both" if len(present) > 1 else present[0].lower()
    while (answer := ask("Slack, Telegram or both?", usual).lower()) not in WHICH:
        notice(f"Answer with one of {', '.join(WHICH)}.")
    return WHICH[answer]


class Answers:
    """What was answered, written to the home's file; ``saved`` are the keys, in order."""

    def __init__(self) -> None:
        self.saved: dict[str, None] = {}

    def save(self, key: str, value: Answer) -> None:
        """Keep one answer. Raises ConfigError if it is not what its key expects."""
        self.save_all({key: value})

    def save_all(self, answers: Mapping[str, Answer]) -> None:
        """Keep several, or none of them."""
        config_files.change(partial(_put, answers=answers), "setup")
        self.saved |= dict.fromkeys(answers)


def _put(layer: Layer, answers: Mapping[str, Answer]) -> Layer:
    for key, value in answers.items():
        section, _, name = key.partition(".")
        if isinstance(value, list):
            layer = config_files.allow(layer, value, section)
        else:
            put(layer, (section, name), value)
    return layer


def _take(answers: Answers, given: Mapping[str, str], users: list[str]) -> None:
    """What the options say: all of it is right, or nothing is written."""
    present = in_force().config.slack
    slack = _with(present, given)
    identity, found = asyncio.run(_verify(slack, users))
    answers.save_all({**given, **({ALLOWED_USERS: found} if found else {})})
    say(f"Connected to {identity.team or identity.team_id} as {identity.user_id}; saved in {home().config}.")


def _ask(answers: Answers, given: Mapping[str, str], users: list[str]) -> None:
    """What no option gave is asked for; without any option, everything. Each answer is saved at once."""
    from codebutler.cli.wizard import Wizard

    is_scripted = bool(given or users)
    present = in_force().config.slack
    slack = _with(present, given)
    if is_scripted and slack.bot_token and slack.app_token and (users or slack.allowed_users):
        _take(answers, given, users)
        return
    if rest := {key: value for key, value in given.items() if key not in TOKENS}:
        answers.save_all(rest)
    tokens = {key: given[key] for key in TOKENS & given.keys()}
    with _asking(answers) as terminal:
        wizard = Wizard(terminal, _with(present, rest), answers.save, tokens)
        asyncio.run(wizard.ask(again=not is_scripted, wanted=users))


def _take_telegram(answers: Answers, given: Mapping[str, str | list[int]]) -> None:
    """What the options say: all of it is right, or nothing is written."""
    _check(given)
    present = in_force().config.telegram
    token, url = given.get(telegram.TOKEN), given.get(telegram.API_URL)
    wanted = msgspec.structs.replace(
        present, bot_token=token or present.bot_token, api_base_url=url or present.api_base_url
    )
    if not wanted.bot_token:
        raise ConfigError("no Telegram bot token: pass --telegram-token (Telegram: @BotFather, /newbot)")
    me = asyncio.run(telegram.identify(wanted))
    answers.save_all(given)
    say(f"Connected to Telegram as @{me.get('username')}; saved in {home().config}.")


def _ask_telegram(answers: Answers) -> None:
    present = in_force().config.telegram
    with _asking(answers) as terminal:
        asyncio.run(telegram.TelegramWizard(terminal, present, answers.save).ask())


@contextmanager
def _asking(answers: Answers) -> Iterator[PromptTerminal]:
    """Questions at the terminal; however they end, the person learns what was saved."""
    try:
        with PromptTerminal() as terminal:
            yield terminal
    except (KeyboardInterrupt, EOFError):
        notice(_stopped(answers))
        raise KeyboardInterrupt from None
    say(f"Saved in {home().config}.")


def _stopped(answers: Answers) -> str:
    if not answers.saved:
        return "Stopped. Nothing was saved."
    kept = ", ".join(answers.saved)
    return f"Stopped. Saved in {home().config}: {kept}. Run `codebutler setup` again to continue."


def _with(present: SlackSection, given: Mapping[str, str]) -> SlackSection:
    """What the supervisor will use. Raises ConfigError if an option is not what its key expects."""
    _check(given)
    return msgspec.structs.replace(
        present,
        bot_token=given.get(BOT_TOKEN) or present.bot_token,
        app_token=given.get(APP_TOKEN) or present.app_token,
        api_base_url=given.get(API_URL) or present.api_base_url,
    )


def _check(given: Mapping[str, Answer]) -> None:
    check_layer(_put({}, given), "setup")


async def _verify(slack: SlackSection, users: list[str]) -> tuple[Identity, list[str]]:
    """Call auth.test, apps.connections.open and, for each user, users.info; returns who we are and the users' IDs.

    Raises ConfigError, saying which token to pass, if one is absent; ChatAuthError for one that is refused.
    """
    if not slack.bot_token:
        raise ConfigError("no bot token: pass --bot-token xoxb-… (Slack: your app, OAuth & Permissions)")
    if not slack.app_token:
        raise ConfigError("no app-level token: pass --app-token xapp-… (Slack: your app, Basic Information)")
    async with slack_api(slack) as api:
        identity = await api.identity()
        await api.open_connection(slack.app_token)
        return identity, [(await find_person(api, user)).id for user in users]


def print_manifest(
    link: Annotated[bool, typer.Option("--link", help="Print the link that creates the app.")] = False,
) -> None:
    """Print the Slack app manifest, or the link that creates the app from it."""
    from codebutler.chat.slack.app import creation_link, manifest

    if link:
        say(creation_link())
    else:
        print_json(manifest())
