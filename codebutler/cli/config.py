"""``codebutler config``: show and change the configuration."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer
from typer._click import Context

from codebutler.cli.command import HELP_NAMES, App, CliGroup
from codebutler.cli.context import effective_config, home, known_repositories, reload_supervisor, repository
from codebutler.cli.output import is_interactive, print_json, print_line, warn
from codebutler.cli.prompts import ask, ask_secret
from codebutler.config.channels import channel_in
from codebutler.config.load import check_layer, default_layer, is_list, leaves, parse_layer, put
from codebutler.config.paths import CONFIG_NAME, RepoPaths
from codebutler.config.programs import agent_fault
from codebutler.config.registering import encode_config, prepare_directory
from codebutler.config.registry import Registry, RepoEntries, find, replace
from codebutler.config.resolve import Resolved, is_secret, mask_value, mask_values
from codebutler.config.schema import AgentName
from codebutler.config.trust import HOME_ONLY, digest
from codebutler.domain.errors import ConfigError
from codebutler.platform.files import PrivateDir

NOT_SET = "not set"
Layer = dict[str, Any]
Edit = Callable[[Layer], Layer]
REPO = typer.Option(help="For this repository only; defaults to all.", autocompletion=known_repositories)


class ConfigGroup(CliGroup):
    """A word that is no subcommand is the name of a repository to show."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """``config`` and ``config NAME`` are ``config show``."""
        if not ctx.resilient_parsing and (not args or args[0] not in (*self.commands, *HELP_NAMES)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def known_keys(incomplete: str) -> list[str]:
    """The configuration keys that start with this."""
    keys = (".".join(path) for path, _ in leaves(default_layer().values))
    return [key for key in keys if key.startswith(incomplete)]


app = App("Show or change the configuration. Without a command, show it.", ConfigGroup)
KEY = typer.Argument(help="The key, such as agent.default.", autocompletion=known_keys)


@app.command()
def show(
    repo: Annotated[
        str | None,
        typer.Argument(
            help="A repository's name; without it, the global one.", autocompletion=known_repositories
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the effective configuration, with secrets masked, and where each value comes from."""
    resolved = effective_config(repository(repo) if repo else None)
    for note in resolved.notes:
        warn(note)
    if as_json:
        print_json(
            {
                "config": mask_values(resolved.values),
                "sources": resolved.provenance,
                "trusted": resolved.trusted,
                "notes": resolved.notes,
            }
        )
    else:
        for line in describe(resolved):
            print_line(line)


@app.command("set")
def set_(
    key: Annotated[str, KEY],
    value: Annotated[
        str | None,
        typer.Argument(
            help="Text, a number, true or false, a comma-separated list, or JSON. If omitted, it is "
            "prompted for: best for keys and tokens."
        ),
    ] = None,
    repo: Annotated[str, REPO] = "",
) -> None:
    """Set one value of the configuration, of all repositories or of one."""
    if repo and key in HOME_ONLY:
        raise ConfigError(f"{key} is set once for all repositories: omit --repo")
    text = _prompt_value(key) if value is None else value
    agent = text if key == "agent.default" else text.partition(" ")[2] if key == "agent.onLimit" else ""
    # Files, the environment and trust together decide which agents exist besides our own.
    is_other = agent and agent not in get_args(AgentName)
    if is_other and (
        fault := agent_fault(effective_config(repository(repo) if repo else None).config, agent)
    ):
        raise ConfigError(f"{key}: {fault}")
    values = dict(leaves(change(partial(with_value, key=key, text=text), NOT_SET, repo)))
    value_now = mask_value(key, values.get(tuple(key.split("."))))
    shown = msgspec.json.encode(value_now).decode() if value_now is not None else text
    print_line(f"Set {key} to {shown}{f' for {repo}' if repo else ''}.")
    _report_change(key, repo)


@app.command()
def unset(key: Annotated[str, KEY], repo: Annotated[str, REPO] = "") -> None:
    """Remove one value, so that its default applies again."""
    change(partial(without, key=key), NOT_SET, repo)
    print_line(f"Unset {key}{f' for {repo}' if repo else ''}.")
    _report_change(key, repo)


def describe(resolved: Resolved) -> list[str]:
    """One line per key: its value as JSON, and its source."""
    pairs = []
    for path, value in leaves(resolved.values):
        if path == ("commands",):
            pairs += [(f"commands.{rule['prefix']}", rule) for rule in value]
        else:
            pairs.append((".".join(path), value))
    shown = [(key, msgspec.json.encode(mask_value(key, value)).decode()) for key, value in pairs]
    return [f"{key} = {text}   # {resolved.provenance[key]}" for key, text in shown]


def with_value(layer: Layer, key: str, text: str) -> Layer:
    """The layer with that value, parsed as its key expects: text, JSON, or a comma-separated list.

    Raises ConfigError with what the key expects.
    """
    readings: list[object] = [text]
    with suppress(ValueError):
        readings.append(json.loads(text))
    fault = ConfigError()
    for value in readings:
        try:
            return _with(layer, key, value)
        except ConfigError as error:
            fault = error
    try:
        return _with(layer, key, [part.strip() for part in text.split(",") if part.strip()])
    except ConfigError as error:
        raise (error if is_list(key) else fault) from None


def _with(layer: Layer, key: str, value: object) -> Layer:
    changed: Layer = json.loads(json.dumps(layer))
    try:
        put(changed, tuple(key.split(".")), value)
    except (AttributeError, TypeError):
        raise ConfigError(f"there is no key {key}: see `codebutler config`") from None
    check_layer(changed, NOT_SET)
    return changed


def without(layer: Layer, key: str) -> Layer:
    """The layer without that key and those below it. Raises ConfigError if it is not in it."""
    present = [
        (path, value) for path, value in leaves(layer) if not f"{'.'.join(path)}.".startswith(f"{key}.")
    ]
    if len(present) == len(list(leaves(layer))):
        raise ConfigError(f"{key} is not set there: `codebutler config` shows where each value comes from")
    remaining: Layer = {}
    for path, value in present:
        put(remaining, path, value)
    return remaining


def _report_change(key: str, repo: str) -> None:
    """Warn if something overrides the file, and let the supervisor reload it."""
    warn_of_overrides(effective_config(repository(repo) if repo else None), [key])
    reload_supervisor()


def _prompt_value(key: str) -> str:
    prompt = ask_secret if is_secret(key) else ask
    text = prompt(key) if is_interactive() else sys.stdin.readline().strip()
    if not text:
        raise ConfigError(f"not set: no value was given; `codebutler config unset {key}` removes it")
    return text


def change(edit: Edit, source: str, repo: str = "") -> Layer:
    """Write the edited file of the home, or of the repository of that name, and return its new content.

    Raises ConfigError, naming ``source``, if the result is not valid: then nothing is written.
    """
    home_dir = home().ensure()
    if repo:
        return _change_repo(Registry(home_dir), repo, edit, source)
    with Registry(home_dir).locked() as directory:
        return _rewrite(directory, edit, source)[1]


def _change_repo(registry: Registry, name: str, edit: Edit, source: str) -> Layer:
    """A trusted file stays trusted: the owner changes it."""
    layer: Layer = {}

    def rewritten(entries: RepoEntries) -> RepoEntries:
        entry = find(entries, name)
        with prepare_directory(RepoPaths(Path(entry.path))) as directory:
            before, now = _rewrite(directory, edit, source)
        layer.update(now)
        if before is not None and digest(before) != entry.digest:
            warn(f"its file was not trusted before: read it, then run `codebutler trust {name}`")
            return entries
        # The digest of what we wrote, not of the file as it is by now: an agent may write, too.
        channel = channel_in(now) or entry.channel_id
        trusted = msgspec.structs.replace(entry, digest=digest(encode_config(now)), channel_id=channel)
        return replace(entries, trusted)

    registry.update(rewritten)
    return layer


def warn_of_overrides(resolved: Resolved, keys: Iterable[str]) -> None:
    """Warn about each key whose value in the file is overridden by the environment."""
    for key in keys:
        source = resolved.provenance.get(key, "")
        if source.startswith("environment") or source == str(home().env_file):
            warn(f"{source} overrides {key} of the file")


def _rewrite(directory: PrivateDir, edit: Edit, source: str) -> tuple[bytes | None, Layer]:
    """The file's old content, None if it was missing, and its new one."""
    before = directory.read(CONFIG_NAME)
    layer = edit(parse_layer(before, str(directory.path / CONFIG_NAME)) if before is not None else {})
    check_layer(layer, source)
    directory.write(CONFIG_NAME, encode_config(layer))
    return before, layer
