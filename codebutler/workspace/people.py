"""Whom the page may act as: the workspace's owner adds others, and may act as them."""

from __future__ import annotations

import re
import secrets

from codebutler.workspace.calls import House
from codebutler.workspace.records import Json, MethodError, User

NAME = re.compile(r"[\w][\w .'-]{0,39}")


class Newcomers:
    """New people and other apps' bots, and their tokens; only the workspace's owner may use it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._workspace = house.workspace

    def known(self) -> list[Json]:
        """Everybody except the app itself."""
        return [
            {"id": user.id, "name": user.name, "is_bot": user.is_bot}
            for user in self._workspace.users.values()
            if user.id != self._workspace.bot.id
        ]

    def add(self, name: str, *, is_bot: bool = False, is_news: bool = True) -> User:
        """Add a user, as a member of every channel; ``is_news``: notify the others. Raises MethodError invalid_name,
        name_taken."""
        if not NAME.fullmatch(name):
            raise MethodError("invalid_name")
        if any(user.name.lower() == name.lower() for user in self._workspace.users.values()):
            raise MethodError("name_taken")
        kind = "xoxb" if is_bot else "xoxp"
        user = self._workspace.add_user(name, f"{kind}-{secrets.token_hex(20)}", is_bot=is_bot)
        if is_news:
            self._house.announcer.joined_team(user)
        return user

    async def invite(self, by: User, given: Json) -> Json:
        """Raises MethodError not_allowed for everybody except the owner, invalid_name, name_taken."""
        self._only_owner(by)
        user = self.add(str(given.get("name") or "").strip(), is_bot=bool(given.get("is_bot")))
        return {"user": {"id": user.id, "name": user.name, "is_bot": user.is_bot}}

    async def become(self, by: User, given: Json) -> Json:
        """Another user's token, never the app's. Raises MethodError not_allowed, user_not_found."""
        self._only_owner(by)
        user = self._workspace.user(str(given.get("user") or ""))
        if user.id == self._workspace.bot.id:
            raise MethodError("not_allowed")
        return {"token": user.token}

    def _only_owner(self, by: User) -> None:
        if by.id != self._workspace.person.id:
            raise MethodError("not_allowed")
