"""`codebutler setup`: tokens and people, checked with the chat before they are saved. `codebutler manifest`: what a
person creates in the chat before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, NoReturn

import typer

from codebutler.chat.platform import PLATFORMS, Given, Platform, Prompter, SetUp, platform, platforms
from codebutler.cli.command import options_by_platform, reporting_bad_options
from codebutler.cli.config import Layer, change, warn_of_overrides
from codebutler.cli.context import effective_config, home, reload_supervisor
from codebutler.cli.output import is_interactive, notice, print_line
from codebutler.cli.people import allow_in, nobody_allowed
from codebutler.cli.prompts import choose, prompter
from codebutler.config.channels import served_chats
from codebutler.config.load import check_layer, put
from codebutler.config.schema import Config
from codebutler.domain.errors import ConfigError

OPENAI_KEY, KIMI_KEY = "openai.apiKey", "kimi.apiKey"
KEYS = {OPENAI_KEY: "OpenAI API key, for voice messages and images", KIMI_KEY: "Kimi API key"}


def setup(
    openai_key: Annotated[str, typer.Option(help="OpenAI API key: voice messages and images.")] = "",
    kimi_key: Annotated[
        str, typer.Option(help="Kimi API key: Kimi Code, the built-in agent, auto-memory.")
    ] = "",
    **chats: object,
) -> None:
    """Connect to your chats: tokens and allowed users. In a terminal, it asks for missing values."""
    keys = {key: value for key, value in ((OPENAI_KEY, openai_key), (KIMI_KEY, kimi_key)) if value}
    given = options_by_platform({each: each.setup_options for each in platforms()}, chats)
    home().ensure()
    answers = Answers()
    _check_answers(keys)
    for each in _chats_to_set_up(given, keys):
        _set_up(each, given.get(each, {}), answers)
    if keys:
        answers.save(keys)
    elif not given and is_interactive():
        with _prompting(answers) as terminal:
            asyncio.run(_ask_keys(terminal, answers))
    if is_interactive() and not given:
        print_line(f"Saved in {home().config}.")
    resolved = effective_config()
    warn_of_overrides(resolved, answers.saved)
    if not any(each.allowed_ids for each in resolved.config.chats):
        notice(nobody_allowed(resolved.config))
    reload_supervisor()
    print_line(f"Next: `{_next_command(resolved.config)}`, then `codebutler supervise`.")


def _next_command(config: Config) -> str:
    """How a repository gets its place in the chat that was set up; with several, in the first."""
    return f"codebutler add-repo PATH {platform(served_chats(config)[0]).needed_place}".rstrip()


def _chats_to_set_up(given: Mapping[Platform, Given], keys: Given) -> Sequence[Platform]:
    """The chats to set up: those with given options, else the choice of the person at the terminal."""
    config = effective_config().config
    if given:
        return list(given)
    if keys and any(each.has_tokens for each in config.chats):
        return []
    if not is_interactive():
        return [each for each in platforms() if each.section_in(config).has_tokens] or _refuse_without_chat()
    names = [each.name for each in platforms()]
    every = "both" if len(names) == 2 else "all"
    choice = {each.name.lower(): [each] for each in platforms()} | {every: list(platforms())}
    present = served_chats(config)
    default = every if len(present) > 1 else present[0].lower()
    return choice[choose(f"{', '.join(names)} or {every}?", default, choice)]


def _refuse_without_chat() -> NoReturn:
    """Nobody can be asked, and no chat has a token."""
    chats = (f"{' and '.join(each.token_flags)} ({each.name})" for each in platforms())
    raise ConfigError(f"no chat is configured: pass {', or '.join(chats)}; see `codebutler setup --help`")


def _set_up(each: Platform, given: Given, answers: Answers) -> None:
    with _prompting(answers) as terminal, reporting_bad_options():
        wish = SetUp(
            config=effective_config().config,
            given=given,
            save=answers.save,
            check=_check_answers,
            prompter=terminal,
        )
        connected = asyncio.run(each.set_up(wish))
    if connected:
        print_line(f"{connected}; saved in {home().config}.")


async def _ask_keys(terminal: Prompter, answers: Answers) -> None:
    terminal.tell("Optional keys; press Enter to skip.")
    for key, what in KEYS.items():
        if value := await terminal.ask_secret(f"   {what}"):
            answers.save({key: value})


class Answers:
    """The answers, written to the home's file; ``saved`` are the keys, in order."""

    def __init__(self) -> None:
        self.saved: dict[str, None] = {}

    def save(self, answers: Given) -> None:
        """Save several answers, or none. Raises ConfigError if one is not what its key expects."""
        change(partial(_with_answers, answers=answers), "setup")
        self.saved |= dict.fromkeys(answers)


def _with_answers(layer: Layer, answers: Given) -> Layer:
    people = {each.section.people_key(): each.section for each in platforms()}
    for key, value in answers.items():
        if key in people:
            layer = allow_in(layer, people[key], value)
        else:
            section, _, name = key.partition(".")
            put(layer, (section, name), value)
    return layer


def _check_answers(given: Given) -> None:
    people = {each.section.people_key() for each in platforms()}
    check_layer(_with_answers({}, {key: value for key, value in given.items() if key not in people}), "setup")


@contextmanager
def _prompting(answers: Answers) -> Iterator[Prompter]:
    """Questions at the terminal; in any case the person learns what was saved."""
    try:
        with prompter() as terminal:
            yield terminal
    except (KeyboardInterrupt, EOFError):
        notice(_stopped_text(answers))
        raise KeyboardInterrupt from None


def _stopped_text(answers: Answers) -> str:
    if not answers.saved:
        return "Stopped. Nothing was saved."
    saved = ", ".join(answers.saved)
    return f"Stopped. Saved in {home().config}: {saved}. Run `codebutler setup` again to continue."


def manifest(
    chat: Annotated[str, typer.Argument(help=f"The chat: {' or '.join(PLATFORMS)}.")] = next(iter(PLATFORMS)),
    link: Annotated[bool, typer.Option("--link", help="Print a link that starts the setup.")] = False,
) -> None:
    """Print what to create in a chat before `codebutler setup`: an app's manifest, or the steps that create a bot."""
    name = next((each for each in PLATFORMS if each.casefold() == chat.casefold()), None)
    if name is None:
        raise typer.BadParameter(f"unknown chat {chat}: choose {' or '.join(PLATFORMS)}")
    typer.echo(platform(name).manifest(link=link))
