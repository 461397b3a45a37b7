"""The names of subjects, streams and consumers, and which of them a host may use. Pure."""

from __future__ import annotations

import re

HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
LEADER_BUCKET = "CB_LEADER"
HOSTS_BUCKET = "CB_HOSTS"
NOTES_BUCKET = "CB_NOTES"
TAKEN_BUCKET = "CB_TAKEN"
ANSWERS = "answers"
REMOVALS = "cb.removed"
"""Where a command at the gateway says that it has removed a host. No host's account knows of it."""
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


def told_by(host: str, order: str) -> str:
    """Where a host answers that order of the gateway: of all that crosses from one account to another, the server
    leads only the answers to a host's own questions back."""
    return f"cb.told.{host}.{order}"


def answers_of(subject: str, order: str) -> str:
    """Where the answer to a question at ``subject`` is to go; "" for the sender's own inbox."""
    host = subject.removeprefix(orders_to(""))
    return told_by(host, order) if host != subject else ""


def stream_in(host: str) -> str:
    """The stream with everything for one host."""
    return f"CB_IN_{host}"


def stream_out(host: str) -> str:
    """The stream with everything from one host."""
    return f"CB_OUT_{host}"


def consumer_of(repo: str) -> str:
    """The durable consumer of a repository's events."""
    return f"ev_{token(repo)}"


HOST_SERVICES = (
    "cb.out.*.>",
    "cb.ask.*",
    "cb.news.*",
    "cb.told.*.>",
    "$JS.API.CONSUMER.MSG.NEXT.*.*",
    "$JS.ACK.>",
)
"""What the gateway's account offers to those of hosts. Each of them imports its part: ``host_services``."""


def host_services(host: str) -> tuple[str, ...]:
    """Where a host's account can send what leaves it; all else that it sends stays inside.

    It cannot make a consumer or read a stream by sequence: the server would then send it what it may not have.
    """
    return (
        calls_of(host, ">"),
        questions_of(host),
        news_of(host),
        told_by(host, ">"),
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_in(host)}.*",
        f"$JS.ACK.{stream_in(host)}.>",
    )
