"""Who may use which agent where (``authorization.rules``). Pure; the default without rules is everybody allowed."""

from __future__ import annotations

from collections.abc import Collection

from codebutler.config.schema import AuthorizationRule, Config
from codebutler.model import OPERATOR


def rules_allow(config: Config, user: str, channel: str, prefixes: Collection[str] | None) -> bool:
    """Whether some rule lets ``user``, one of ``allowedUsers``, use an agent known by one of ``prefixes``.

    None = no agent is asked for. The operator came over the owner's own socket, and the owner writes the rules.
    """
    rules = config.authorization.rules
    return not rules or user == OPERATOR or any(_matches(rule, user, channel, prefixes) for rule in rules)


def _matches(rule: AuthorizationRule, user: str, channel: str, prefixes: Collection[str] | None) -> bool:
    return (
        channel in rule.channels
        and ("*" in rule.users or user in rule.users)
        and (prefixes is None or any(prefix in rule.allowed_prefixes for prefix in prefixes))
    )
