"""App Home of the running product: what a person sees on opening it, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import House, house
from tests.e2e.test_approvals import asking, model_env, touch
from tests.e2e.test_matrix import rehearsal
from tests.modelserver.server import ModelServer, Reply


def shown(built: House, user: str) -> str:
    view = built.workspace.context.views.home(user)
    return "\n".join(str(block["text"]["text"]) for block in view.blocks if "text" in block) if view else ""


async def test_it_shows_the_work_and_whom_it_waits_for(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        person, stranger = built.workspace.workspace.person, built.workspace.add_user("mallory")
        built.workspace.dialogs.open_home(person, {"tab": "home"})
        await built.until("an empty home", lambda: "Nothing yet" in shown(built, person.id) or None)
        ts = await built.say(channel, "list the files")
        await built.outcome(channel, ts)
        link = f"/archives/{channel}/p{ts.replace('.', '')}|list the files>"
        home = await built.until(
            "the turn in the home",
            lambda: (
                text if f"✅ <{built.workspace.context.url}" in (text := shown(built, person.id)) else None
            ),
        )
        assert link in home
        assert f"<#{channel}> *sample*" in home
        built.workspace.dialogs.open_home(stranger, {"tab": "home"})
        await built.until(
            "a home for a stranger", lambda: "not authorized" in shown(built, stranger.id) or None
        )
        assert "sample" not in shown(built, stranger.id)


async def test_leave_is_given_there_for_what_waits(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await asking(built, git_repo)
        model.play(touch(git_repo), Reply("All done."))
        ts = await built.say(channel, "make a trace")
        async with page_at(built.workspace.url) as (page, errors):
            await page.get_by_role("button", name="CodeButler", exact=True).click()
            home = page.locator("#home")
            await expect(home).to_contain_text(f"touch {git_repo}/trace", timeout=PATIENCE_MS)
            assert not (git_repo / "trace").exists()
            await home.get_by_role("button", name="Allow").click()
            await expect(home).to_contain_text("Nothing needs you.", timeout=PATIENCE_MS)
            await expect(home.get_by_role("button", name="Allow")).to_have_count(0)
            assert errors == []
        await built.answer(channel, ts, "All done.")
        assert (git_repo / "trace").exists()
        await built.answer(channel, ts, f"✅ Allowed by {built.workspace.workspace.person.name}")
