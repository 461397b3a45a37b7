"""The names of subjects, streams and consumers, and which of them a host may use. Pure."""

from __future__ import annotations

import re

HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
LEADER_BUCKET = "CB_LEADER"
HOSTS_BUCKET = "CB_HOSTS"
NOTES_BUCKET = "CB_NOTES"
TAKEN_BUCKET = "CB_TAKEN"
ANSWERS = "answers"
GATEWAY = "gateway"


def token(repo: str) -> str:
    """A repository's name as one token of a subject and as a consumer's name, which hold no dot."""
    return repo.replace(".", "=")


def events_to(host: str, repo: str) -> str:
    """Where the events of a repository go."""
    return f"cb.in.{host}.ev.{token(repo)}"


def answers_to(host: str) -> str:
    """Where answers to a host's calls go."""
    return f"cb.in.{host}.{ANSWERS}"


def calls_of(host: str, repo: str) -> str:
    """Where a host says what its repository wants done."""
    return f"cb.out.{host}.{token(repo)}"


def news_of(host: str) -> str:
    """Where a host shows what is going on, which nobody keeps."""
    return f"cb.news.{host}"


def questions_of(host: str) -> str:
    """Where a host asks the gateway."""
    return f"cb.ask.{host}"


def orders_to(host: str) -> str:
    """Where the gateway asks a host."""
    return f"cb.do.{host}"


STAND_BY = "cb.standby"
"""Where a gateway that does not lead says so."""


def inbox_of(host: str) -> str:
    """The beginning of the subjects that replies to a host go to."""
    return f"_INBOX_{host}"


def stream_in(host: str) -> str:
    """The stream with everything for one host."""
    return f"CB_IN_{host}"


def stream_out(host: str) -> str:
    """The stream with everything from one host."""
    return f"CB_OUT_{host}"


def consumer_of(repo: str) -> str:
    """The durable consumer of a repository's events."""
    return f"ev_{token(repo)}"


def host_permissions(host: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a host's credential may publish to, and subscribe to.

    It may not make a consumer or read a stream by sequence: the server would then send what the host had stored to any
    subject that the host names, past these permissions.
    """
    publish = (
        calls_of(host, ">"),
        news_of(host),
        questions_of(host),
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_in(host)}.*",
        f"$JS.ACK.{stream_in(host)}.>",
    )
    return publish, (f"{inbox_of(host)}.>", orders_to(host))
