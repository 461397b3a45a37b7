"""``jobs.yaml``: what to run, when, and where to post it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from codebutler.config.load import explain
from codebutler.config.programs import RUN
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import ConfigError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef
from codebutler.schedule.cron import Cron, parse
from codebutler.text.requests import is_plain
from codebutler.text.yaml import decode_yaml

MAX_VALUE_CHARS = 4000
MIN_SECRET_CHARS = 16
_PLACEHOLDER = re.compile(r"\{\{\s*body((?:\.[A-Za-z0-9_-]+)*)\s*\}\}")
_AGENT = re.compile(r"[a-z][a-z0-9_-]*")
FILE_NAME = "jobs.yaml"
MAX_JOBS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHAPE = "begin with `jobs:`, and start each job below it with a `-`"
Missed = Literal["once", "skip"]


class HookSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One entry of ``hooks`` in the home's file. ``secret_env`` names the variable that holds the secret. With
    ``pulls``, a call is news of pull requests and no prompt."""

    name: str
    secret_env: str
    prompt: str = ""
    pulls: bool = False
    agent: str = ""
    repo: str = ""
    channel: ConversationRef = NO_CHANNEL
    label: str = ""


class Hook(Struct, frozen=True):
    """A hook that can be called."""

    name: str
    repo: str
    channel: ConversationRef
    template: str
    label: str
    secret: bytes
    agent: str = ""
    pulls: bool = False

    def admits(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether the caller knows the secret: ``X-Hub-Signature-256`` over the body (as GitHub signs),
        ``X-Gitlab-Token``, or ``Authorization: Bearer``. Header names are in lower case."""
        signature = headers.get("x-hub-signature-256", "")
        if signature:
            expected = hmac.new(self.secret, body, hashlib.sha256).hexdigest()
            return hmac.compare_digest(signature.encode(), f"sha256={expected}".encode())
        if token := headers.get("x-gitlab-token", ""):
            return hmac.compare_digest(token.encode(), self.secret)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.secret)

    def key(self, headers: Mapping[str, str]) -> str:
        """Identifies an admitted call; "" if nothing does.

        For a signed call it is the signature, so that an intercepted call cannot be replayed, whatever else the copy
        contains. Callers with the secret itself may name each call.
        """
        if signature := headers.get("x-hub-signature-256", ""):
            return f"signed:{signature}"
        named = headers.get("x-github-delivery") or headers.get("idempotency-key")
        return f"named:{named}" if named else ""

    def text(self, body: Any) -> str:
        """The prompt for a body (JSON, or the raw text). Nothing in the body can become a command, or name an agent or
        a program."""
        filled = _PLACEHOLDER.sub(lambda match: _value(body, match[1].split(".")[1:]), self.template)
        if self.agent:
            return f"{self.agent}: {filled}"
        return filled if is_plain(filled) else f"The hook {self.name} says:\n{filled}"


def hook_of(spec: HookSpec, where: str, env: Mapping[str, str], place: tuple[str, ConversationRef]) -> Hook:
    """``place``: (repository, channel). Raises ConfigError, which says what is missing."""
    if not _NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}.name: {spec.name!r}: use letters, digits, '.', '_' and '-'")
    if spec.agent and not _AGENT.fullmatch(spec.agent):
        raise ConfigError(
            f"{where}.agent ({spec.name}): {spec.agent!r}: use the prefix that people write before the colon"
        )
    secret = env.get(spec.secret_env, "")
    if len(secret) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"{where} ({spec.name}): set {spec.secret_env or 'secretEnv'} in the home's .env to a secret of at "
            f"least {MIN_SECRET_CHARS} characters"
        )
    if spec.pulls and (spec.prompt or spec.agent or spec.channel):
        raise ConfigError(f"{where} ({spec.name}): `pulls` takes no prompt, agent or channel: remove them")
    if not spec.pulls and not spec.prompt.strip():
        raise ConfigError(
            f"{where} ({spec.name}): give it a prompt; {{{{ body.some.field }}}} inserts a field of the request"
        )
    return Hook(
        name=spec.name,
        repo=place[0],
        channel=place[1],
        template=spec.prompt.strip(),
        label=spec.label.strip() or spec.name,
        secret=secret.encode(),
        agent=spec.agent,
        pulls=spec.pulls,
    )


def _value(body: Any, path: list[str]) -> str:
    for key in path:
        if isinstance(body, dict):
            body = body.get(key, "")
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            return ""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… (cut)"


class Spec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """One entry of the file as written. ``repo`` is for the home's file only. It is due by ``cron``, or when a file of
    the repository that matches one of ``watch`` changes.

    ``missed``: what happens to runs that came due while CodeButler was down: ``once`` = one run, if the last was due
    within ``catch_up_hours``; ``skip`` = none.
    """

    name: str
    cron: str = ""
    watch: tuple[str, ...] | str = ()
    command: str = ""
    prompt: str = ""
    agent: str = ""
    repo: str = ""
    channel: ConversationRef = NO_CHANNEL
    cwd: str = ""
    label: str = ""
    timezone: str = ""
    missed: Missed = "once"
    catch_up_hours: float = 24.0
    enabled: bool = True


class _JobsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jobs: tuple[Spec, ...] = ()
    hooks: tuple[HookSpec, ...] = ()


class JobPlace(Struct, frozen=True):
    """A repository as a job may name it. ``programs``: its prefixes that start a program rather than an agent."""

    repo: str
    channel: ConversationRef
    channel_name: str = ""
    programs: frozenset[str] = frozenset({RUN.prefix})


class Job(Struct, frozen=True):
    """A job that can run: ``text`` is posted in ``channel`` when ``cron`` is due or a file in ``watch`` changes.

    ``digest`` changes with any change of its entry. ``reports``: a report is posted instead, and nothing runs.
    """

    name: str
    repo: str
    channel: ConversationRef
    text: str
    cron: Cron | None
    watch: tuple[str, ...]
    label: str
    missed: Missed
    catch_up_s: float
    enabled: bool
    digest: str
    reports: bool = False

    def next(self, moment: datetime) -> datetime | None:
        """When it is next due after ``moment``; None if it does not run by the clock."""
        return None if self.cron is None else self.cron.after(moment)

    @property
    def when(self) -> str:
        """Its cron line, or the files it watches."""
        return self.cron.line if self.cron is not None else f"watch {' '.join(self.watch)}"


class FileContents(Struct, frozen=True):
    """The content of a file."""

    jobs: tuple[Job, ...] = ()
    hooks: tuple[Hook, ...] = ()


Where = Callable[[str, ConversationRef], JobPlace | None]
"""Finds the repository for an entry's (``repo``, ``channel``)."""


def parse_file(data: bytes, source: str, where: Where, env: Mapping[str, str] | None = None) -> FileContents:
    """The jobs and hooks of a file. Hooks are accepted only with ``env``, which holds their secrets.

    Raises ConfigError with file, entry and what was expected.
    """
    try:
        parsed: _JobsFile | None = decode_yaml(data, _JobsFile | None)
    except msgspec.ValidationError as error:
        key, what = explain(error)
        raise ConfigError(f"{source}: {key}: {what}" if key else f"{source}: {SHAPE}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{source} is not valid YAML: {_first_line(error)}{_hint(error)}") from None
    file = parsed or _JobsFile()
    specs = file.jobs
    if len(specs) > MAX_JOBS:
        raise ConfigError(f"{source}: {len(specs)} jobs, at most {MAX_JOBS} are allowed")
    if file.hooks and env is None:
        raise ConfigError(f"{source}: hooks are allowed in the home's jobs.yaml only")
    _refuse_twins([*specs], source)
    _refuse_twins([*file.hooks], source)
    jobs = tuple(_job(spec, f"{source}: jobs[{number}]", where) for number, spec in enumerate(specs))
    hooks = [_hook(spec, f"{source}: hooks[{n}]", where, env or {}) for n, spec in enumerate(file.hooks)]
    return FileContents(jobs, tuple(hooks))


def place_in(home: Sequence[JobPlace]) -> Where:
    """For the home's file: the repository with that name or channel, or the only one."""

    def where(repo: str, channel: ConversationRef) -> JobPlace | None:
        if not repo and not channel:
            return home[0] if len(home) == 1 else None
        return next((each for each in home if repo in ("", each.repo) and _fits(channel, each)), None)

    return where


def place_at(place: JobPlace) -> Where:
    """For a repository's own file: that repository, in its own channel."""
    return lambda repo, channel: place if repo in ("", place.repo) and _fits(channel, place) else None


def _fits(channel: ConversationRef, place: JobPlace) -> bool:
    return channel.lstrip("#") in ("", place.channel, place.channel_name or place.channel)


def _refuse_twins(specs: Sequence[Spec | HookSpec], source: str) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise ConfigError(f"{source}: two entries are named {spec.name}: names must be unique")
        seen.add(spec.name)


def _hook(spec: HookSpec, at: str, where: Where, env: Mapping[str, str]) -> Hook:
    found = where(spec.repo, spec.channel)
    if found is None:
        raise ConfigError(f"{at} ({spec.name}): no served repository matches its repo or channel")
    if spec.agent in found.programs:
        raise ConfigError(
            f"{at}.agent ({spec.name}): {spec.agent} is not an agent, and a hook never runs a command"
        )
    return hook_of(spec, at, env, (found.repo, found.channel))


def _job(spec: Spec, at: str, where: Where) -> Job:
    if not _NAME.fullmatch(spec.name):
        raise ConfigError(f"{at}.name: {spec.name!r}: use letters, digits, '.', '_' and '-'")
    if bool(spec.command.strip()) == bool(spec.prompt.strip()):
        raise ConfigError(f"{at} ({spec.name}): give it either a command or a prompt")
    if spec.agent and spec.command:
        raise ConfigError(f"{at}.agent ({spec.name}): a command runs without an agent")
    if not 0 <= spec.catch_up_hours <= 24 * 365:
        raise ConfigError(f"{at}.catchUpHours ({spec.name}): from 0 to 8760")
    found = where(spec.repo, spec.channel)
    if found is None:
        raise ConfigError(f"{at} ({spec.name}): no served repository matches its repo or channel")
    if bool(spec.cron) == bool(spec.watch):
        raise ConfigError(f"{at} ({spec.name}): give it either a cron line or files to watch")
    try:
        cron = parse(spec.cron, zone_of(spec.timezone)) if spec.cron else None
    except ValueError as error:
        raise ConfigError(f"{at} ({spec.name}): {error}") from None
    return Job(
        name=spec.name,
        repo=found.repo,
        channel=found.channel,
        text=_text(spec),
        cron=cron,
        watch=(spec.watch,) if isinstance(spec.watch, str) and spec.watch else tuple(spec.watch),
        label=spec.label.strip() or spec.name,
        missed=spec.missed,
        catch_up_s=spec.catch_up_hours * 3600,
        enabled=spec.enabled,
        digest=hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:16],
    )


def _text(spec: Spec) -> str:
    """The text that the job posts, as a person in the channel would write it."""
    if spec.command:
        moved = f"cd {shlex.quote(spec.cwd)} && " if spec.cwd else ""
        return f"run: {moved}{spec.command.strip()}"
    asked = f"In the directory {spec.cwd}: {spec.prompt.strip()}" if spec.cwd else spec.prompt.strip()
    return f"{spec.agent}: {asked}" if spec.agent else asked


def _hint(error: Exception) -> str:
    """The two things that people write in this file and that YAML misreads."""
    if "alias" in str(error):
        return ": a value that begins with * needs quotes, as in cron: '*/5 * * * *'"
    if "mapping values" in str(error):
        return ": a text with a colon needs quotes, as in command: 'echo a: b'"
    return ""


def _first_line(error: Exception) -> str:
    """Where the error is and what it is, without the parser's name for a byte string."""
    return " ".join(str(error).replace('in "<byte string>", ', "at ").split())[:200]
