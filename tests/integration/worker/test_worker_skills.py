"""Skills in a worker: listed, and given to agents that people may use."""

from __future__ import annotations

from pathlib import Path

import msgspec

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings, SkillsSection
from codebutler.config.skills import skills_digest
from codebutler.domain.model import Command
from tests.events import posted, slashed
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def write(root: Path, name: str, text: str = "Slowly, with care.", program: str | None = None) -> None:
    directory = root / "skills" / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\n{text}\n")
    if program is not None:
        (directory / "skill.py").write_text(program)


def says(parent: Parent, argument: str, ts: str) -> None:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!skills {argument}", thread=None)
    parent.deliver(event, Command(name="skills", argument=argument))


def changed(repo: Path, **sections: object) -> RepoSettings:
    plain = settings(repo)
    return msgspec.structs.replace(plain, config=msgspec.structs.replace(plain.config, **sections))


async def test_a_named_skill_is_a_turn_with_the_persons_words_first(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        says(parent, "review-diff the last commit", "100.1")
        run = await parent.run(0)
        assert run.request.prompt.startswith("the last commit\n\n[skill review-diff")
        assert "git diff HEAD" in run.request.prompt
        run.finish("Ready.")
        await parent.until(lambda: "white_check_mark" in parent.reactions("100.1"), flow=True)
        await parent.post_with("Ready.")


async def test_the_homes_skills_are_there_and_edits_count_at_once(tmp_path: Path) -> None:
    home = tmp_path / ".codebutler" / "home"
    async with worker(settings(tmp_path)) as parent:
        says(parent, "deploy", "100.1")
        await parent.post_with("There is no skill `deploy` here")
        write(home, "deploy")
        says(parent, "deploy", "100.2")
        run = await parent.run(0)
        assert run.request.prompt.startswith("Use the skill deploy.\n\n[skill deploy")
        run.finish()


async def test_a_repositorys_skills_wait_for_trust(tmp_path: Path) -> None:
    write(tmp_path / ".codebutler", "deploy")
    async with worker(settings(tmp_path)) as parent:
        says(parent, "", "100.1")
        listed = await parent.post_with("🎓 Say")
        assert "• `deploy`" not in text_of(listed)
        assert "Not used until somebody runs `codebutler trust` on the machine: `deploy`" in text_of(listed)
        says(parent, "deploy now", "100.2")
        await parent.post_with("There is no skill `deploy` here")
    trusted = msgspec.structs.replace(settings(tmp_path), skills_digest=skills_digest(tmp_path))
    async with worker(trusted) as parent:
        says(parent, "deploy now", "200.1")
        (await parent.run(0)).finish()
    assert parent.backend.runs[0].request.prompt.startswith("now\n\n[skill deploy")


async def test_one_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    async with worker(changed(tmp_path, skills=SkillsSection(disabled=("review-diff",)))) as parent:
        says(parent, "", "100.1")
        listed = await parent.post_with("🎓 Say")
        assert "review-diff" not in text_of(listed)
        assert "release-notes" in text_of(listed)
        says(parent, "reviev-diff", "100.2")
        await parent.post_with("There is no skill `reviev-diff` here. `!skills` lists the available ones.")
        says(parent, "release-note", "100.3")
        await parent.post_with("Did you mean `!skills release-notes`?")


async def test_whoever_may_not_use_the_agent_may_not_use_its_skills(tmp_path: Path) -> None:
    rule = AuthorizationRule(channels=(CHANNEL,), users=("*",), allowed_prefixes=("run",))
    async with worker(changed(tmp_path, authorization=AuthorizationSection(rules=(rule,)))) as parent:
        says(parent, "review-diff", "100.1")
        await parent.post_with("You are not authorized to use the agent that this skill is for.")
        assert parent.backend.runs == []


async def test_a_skill_that_runs_is_for_the_agent_that_can_run_it(tmp_path: Path) -> None:
    write(tmp_path / ".codebutler" / "home", "count", program="print(1)")
    async with worker(settings(tmp_path)) as parent:
        says(parent, "count these words", "100.1")
        await parent.post_with("native does not work here")  # the scripted house has no such agent


async def test_a_slash_command_gives_it_to_the_channel(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        event = slashed(
            channel=CHANNEL, user=USER, command="/butler", text="skills commit-message", invocation="t1"
        )
        parent.deliver(event, Command(name="skills", argument="commit-message"))
        (await parent.run(0)).finish("feat: done")
        assert (await parent.post_with("feat: done")).only_for == ""


async def test_a_broken_skill_is_told(tmp_path: Path) -> None:
    write(tmp_path / ".codebutler" / "home", "deploy", "")
    async with worker(settings(tmp_path)) as parent:
        says(parent, "", "100.1")
        assert "deploy/SKILL.md: add the instructions" in text_of(await parent.post_with("🎓 Say"))
