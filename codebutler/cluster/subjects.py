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
"""Where a command on the gateway's machine reports that it has removed a host. No host's account has this subject."""
GATEWAY = "gateway"


def token(repo: str) -> str:
    """A repository's name as one token of a subject and as a consumer's name, which must not contain a dot."""
    return repo.replace(".", "=")


def events_to(host: str, repo: str) -> str:
    """Where the events of a repository go."""
    return f"cb.in.{host}.ev.{token(repo)}"


def answers_to(host: str) -> str:
    """Where answers to a host's calls go."""
    return f"cb.in.{host}.{ANSWERS}"


def calls_of(host: str, repo: str) -> str:
    """Where a host sends its repository's calls."""
    return f"cb.out.{host}.{token(repo)}"


def news_of(host: str) -> str:
    """Where a host reports current activity, which is not stored."""
    return f"cb.news.{host}"


def questions_of(host: str) -> str:
    """Where a host asks the gateway."""
    return f"cb.ask.{host}"


def orders_to(host: str) -> str:
    """Where the gateway asks a host."""
    return f"cb.do.{host}"


STAND_BY = "cb.standby"
"""Where a gateway reports that it stands by."""


def told_by(host: str, order: str) -> str:
    """Where a host answers that order of the gateway. Between accounts, the server routes only the answers to a host's
    own questions automatically."""
    return f"cb.told.{host}.{order}"


def answers_of(subject: str, order: str) -> str:
    """Where the answer to a question at ``subject`` goes; "" for the sender's own inbox."""
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
"""The subjects that the gateway's account offers to the hosts' accounts. Each host imports its part:
``host_services``."""


def host_services(host: str) -> tuple[str, ...]:
    """The only subjects on which a host's messages leave its own account.

    It cannot create a consumer or read a stream by sequence: the server would then send it other hosts' messages.
    """
    return (
        calls_of(host, ">"),
        questions_of(host),
        news_of(host),
        told_by(host, ">"),
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_in(host)}.*",
        f"$JS.ACK.{stream_in(host)}.>",
    )
