"""``jobs.yaml``: what is to run, when, and where it is said. Pure."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from codebutler.config.explain import explain
from codebutler.errors import ConfigError
from codebutler.schedule.cron import Cron, parse, zone_of

FILE_NAME = "jobs.yaml"
MAX_JOBS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Missed = Literal["once", "skip"]


class Spec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """One entry of the file as it is written. ``repo`` is for the home's file only.

    ``missed``: what becomes of runs that came due while nothing was there to run them: ``once`` = one run, if the
    last was due within ``catch_up_hours``; ``skip`` = none.
    """

    name: str
    cron: str
    command: str = ""
    prompt: str = ""
    agent: str = ""
    repo: str = ""
    channel: str = ""
    cwd: str = ""
    label: str = ""
    timezone: str = ""
    missed: Missed = "once"
    catch_up_hours: float = 24.0
    enabled: bool = True


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jobs: tuple[Spec, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A repository as a job may name it."""

    repo: str
    channel: str
    channel_name: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that can be run: ``text`` is said in ``channel`` whenever ``cron`` is due.

    ``digest`` changes with anything that the file says of it.
    """

    name: str
    repo: str
    channel: str
    text: str
    cron: Cron
    label: str
    missed: Missed
    catch_up_s: float
    enabled: bool
    digest: str


def parse_jobs(data: bytes, source: str, place: Callable[[Spec], Place | None]) -> tuple[Job, ...]:
    """The jobs of a file; ``place`` knows which repository an entry means.

    Raises ConfigError with file, entry and what was expected.
    """
    try:
        parsed = msgspec.yaml.decode(data, type=_File | None)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{source} is no YAML: {_first_line(error)}") from None
    specs = parsed.jobs if parsed is not None else ()
    if len(specs) > MAX_JOBS:
        raise ConfigError(f"{source}: {len(specs)} jobs, at most {MAX_JOBS} are taken")
    _refuse_twins(specs, source)
    return tuple(_job(spec, f"{source}: jobs[{number}]", place) for number, spec in enumerate(specs))


def place_in(home: Sequence[Place]) -> Callable[[Spec], Place | None]:
    """For the home's file: the repository that is named, or whose channel is, or the only one."""
    return lambda spec: next((each for each in home if _meant(spec, each, alone=len(home) == 1)), None)


def _meant(spec: Spec, place: Place, *, alone: bool) -> bool:
    if spec.repo:
        return spec.repo == place.repo and _fits(spec, place)
    return _fits(spec, place) if spec.channel else alone


def place_at(place: Place) -> Callable[[Spec], Place | None]:
    """For a repository's own file: that repository, in its own channel."""
    return lambda spec: place if spec.repo in ("", place.repo) and _fits(spec, place) else None


def _fits(spec: Spec, place: Place) -> bool:
    return spec.channel.lstrip("#") in ("", place.channel, place.channel_name or place.channel)


def _refuse_twins(specs: Sequence[Spec], source: str) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise ConfigError(f"{source}: two jobs are named {spec.name}: give each a name of its own")
        seen.add(spec.name)


def _job(spec: Spec, where: str, place: Callable[[Spec], Place | None]) -> Job:
    if not _NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}.name: {spec.name!r}: use letters, digits, '.', '_' and '-'")
    if bool(spec.command.strip()) == bool(spec.prompt.strip()):
        raise ConfigError(f"{where} ({spec.name}): give it a command or a prompt, one of the two")
    if spec.agent and spec.command:
        raise ConfigError(f"{where}.agent ({spec.name}): a command runs without an agent")
    if not 0 <= spec.catch_up_hours <= 24 * 365:
        raise ConfigError(f"{where}.catchUpHours ({spec.name}): from 0 to 8760")
    found = place(spec)
    if found is None:
        raise ConfigError(f"{where} ({spec.name}): no repository served here fits its repo or channel")
    try:
        cron = parse(spec.cron, zone_of(spec.timezone))
    except ValueError as error:
        raise ConfigError(f"{where} ({spec.name}): {error}") from None
    return Job(
        name=spec.name,
        repo=found.repo,
        channel=found.channel,
        text=_text(spec),
        cron=cron,
        label=spec.label.strip() or spec.name,
        missed=spec.missed,
        catch_up_s=spec.catch_up_hours * 3600,
        enabled=spec.enabled,
        digest=hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:16],
    )


def _text(spec: Spec) -> str:
    """What the job says, as somebody in the channel would."""
    if spec.command:
        moved = f"cd {shlex.quote(spec.cwd)} && " if spec.cwd else ""
        return f"run: {moved}{spec.command.strip()}"
    asked = f"In the directory {spec.cwd}: {spec.prompt.strip()}" if spec.cwd else spec.prompt.strip()
    return f"{spec.agent}: {asked}" if spec.agent else asked


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
