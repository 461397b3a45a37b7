"""Direct messages to the app.

| case | what happens |
|---|---|
| D01 | the first one ever, written while nothing runs: it is asked which of two repositories is meant |
"""

from __future__ import annotations

import shutil
from pathlib import Path

from codebutler.actions import REPO_ACTION
from tests.e2e.house import House, house
from tests.e2e.test_matrix import QUICK
from tests.programs import require


def direct_of(built: House) -> bool:
    """Whether there is any direct conversation."""
    return any(channel.is_im for channel in built.workspace.workspace.channels.values())


async def test_d01_a_direct_message_finds_its_repository(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "alpha", "beta") as built:
        person, bot = built.workspace.workspace.person, built.workspace.workspace.bot
        alpha = await built.add_repo(git_repo, "alpha", agent=QUICK)
        await built.add_repo(shutil.copytree(git_repo, tmp_path / "second"), "beta", agent=QUICK)
        await built.supervise()
        await built.until("an acquaintance", lambda: direct_of(built))
        await built.stop()
        direct = built.workspace.workspace.open_im(person.id, bot.id).id
        ts = await built.say(direct, "list the files")
        await built.supervise()
        card = await built.answer(direct, ts, "Which repository")
        await built.click(direct, card["ts"], REPO_ACTION, "alpha")
        assert await built.outcome(direct, ts) == "white_check_mark"
        await built.answer(direct, ts, "app.py")
        again = await built.say(direct, "list the files", ts)
        assert await built.outcome(direct, again) == "white_check_mark"
        told = await built.say(direct, "status")
        await built.answer(direct, told, "beta")
        said = built.workspace.workspace.channel(alpha).messages.values()
        assert not [message for message in said if "app.py" in message.text]
