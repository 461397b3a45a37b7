"""A terminal's session in a thread and back, in a whole worker with sessions as the real programs write them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from codebutler.config.agent_sessions import claude_sessions, kimi_sessions
from codebutler.config.schema import AuthorizationRule, AuthorizationSection, KimiSection
from codebutler.domain.model import Command, Post
from codebutler_worker.agents.shared_sessions import kept_here
from codebutler_worker.commands import terminal
from codebutler_worker.tree.worktrees import tree_of
from tests.desk_sessions import CLAUDE_ID, KIMI_ID, claude_session, kimi_session, opened_by
from tests.events import posted, slashed
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

KEY = "sk-ant-0123456789abcdefghijklmnop"


def home_of(repo: Path) -> Path:
    return repo / ".codebutler" / "home"


async def told(parent: Parent, name: str, ref: str, argument: str = "", thread: str | None = None) -> str:
    """What a command is answered with."""
    before = len(parent.posts)
    event = posted(channel=CHANNEL, ref=ref, user=USER, text=f"!{name} {argument}", thread=thread)
    parent.deliver(event, Command(name=name, argument=argument))
    found = await parent.until(
        lambda: [post for post in parent.posts[before:] if post.thread == (thread or ref)], flow=True
    )
    return text_of(found[0]).replace("&amp;", "&")


async def test_a_session_goes_on_in_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    claude_session(home_of(tmp_path), tmp_path, ("fix the login", "It was the *cache*."), ("thanks", "Sure."))
    async with worker(settings(tmp_path)) as parent:
        said = await told(parent, "continue", "100.1", CLAUDE_ID[:8])
        assert f"*Claude Code*, session `{CLAUDE_ID}`" in said
        assert "• fix the login" in said
        assert "> Sure." in said
        assert "Reply in this thread to continue it" in said
    async with worker(settings(tmp_path)) as parent:  # it survives a restart
        parent.says("and now?", "100.3", "100.1")
        run = await parent.run(0)
        assert run.request.session_id == CLAUDE_ID
        assert run.request.prompt == "and now?"
        run.finish(session_id=CLAUDE_ID)
        await parent.post_with("Done.")
        said = await told(parent, "continue", "200.1", CLAUDE_ID)
        assert "continues in <https://slack.com/archives/C0REPO/p1001|its thread>" in said
        said = await told(parent, "terminal", "100.5", thread="100.1")
        assert f"cd {tmp_path} && claude --resume {CLAUDE_ID}" in said


async def test_a_slash_command_begins_a_thread(tmp_path: Path) -> None:
    claude_session(home_of(tmp_path), tmp_path, ("fix it", "Fixed."))
    async with worker(settings(tmp_path)) as parent:
        event = slashed(
            channel=CHANNEL, user=USER, command="/butler", text=f"continue {CLAUDE_ID}", invocation="t1"
        )
        parent.deliver(event, Command(name="continue", argument=CLAUDE_ID))
        post = await parent.post_with("Claude Code")
        assert (post.thread, post.only_for) == (None, "")
        sends = [each for each in parent.heard if getattr(each, "operation", None) is post]
        root = parent.ts_of(sends[0].op_id)  # type: ignore[union-attr]  # a Send
        await parent.until(parent.is_idle, flow=True)
        parent.says("go on", "9001.1", root)
        assert (await parent.run(0)).request.session_id == CLAUDE_ID


async def test_what_stands_in_a_session_is_shown_as_it_is_and_without_secrets(tmp_path: Path) -> None:
    evil = f"<!channel> <@U0BEN> [x](http://evil) {KEY}\u202e **b**"
    claude_session(home_of(tmp_path), tmp_path, *[(f"{evil} {n}", evil) for n in range(9)])
    async with worker(settings(tmp_path)) as parent:
        said = await told(parent, "continue", "100.1", CLAUDE_ID)
        assert KEY not in said
        assert "<!channel>" not in said
        assert "<@U0BEN>" not in said
        assert "<http://evil" not in said
        assert "\u202e" not in said
        assert "5 messages left out" in said


async def test_a_session_that_is_open_in_a_terminal_is_copied(tmp_path: Path) -> None:
    home = home_of(tmp_path)
    path = claude_session(home, tmp_path, ("fix it", "Fixed."))
    with path.open("a") as file:
        file.write('{"type":"user","half')  # it is being written
    opened_by(home, CLAUDE_ID, os.getpid())
    before = path.read_bytes()
    async with worker(settings(tmp_path)) as parent:
        await told(parent, "continue", "100.1", CLAUDE_ID)
        parent.says("go on", "100.3", "100.1")
        copied = (await parent.run(0)).request.session_id
        assert copied
        assert copied != CLAUDE_ID
    copy = path.with_name(f"{copied}.jsonl").read_text()
    assert path.read_bytes() == before
    assert CLAUDE_ID not in copy
    assert "fix it" in copy
    assert copy.endswith("\n")


@pytest.mark.parametrize("pid", [0, 2**22 + 1])
def test_a_session_of_a_terminal_that_has_ended_is_not_open(tmp_path: Path, pid: int) -> None:
    claude_session(tmp_path, tmp_path, ("fix it", "Fixed."))
    opened_by(tmp_path, CLAUDE_ID, pid)
    assert kept_here(tmp_path, tmp_path, "claude", CLAUDE_ID) == CLAUDE_ID


async def test_in_worktrees_the_session_is_copied_to_where_the_thread_works(
    tmp_path: Path, git_repo: Path
) -> None:
    home = home_of(git_repo)
    claude_session(home, git_repo, ("fix it", "Fixed."))
    tools = claude_sessions(home / ".claude", git_repo) / CLAUDE_ID / "tool-results"
    tools.mkdir(parents=True)
    (tools / "1.txt").write_text("long output")
    (tools / "link.txt").symlink_to(tmp_path)
    async with worker(settings(git_repo, isolation="worktree")) as parent:
        await told(parent, "continue", "100.1", CLAUDE_ID)
        tree = tree_of(git_repo, f"{CHANNEL}:100.1")
        [copy] = claude_sessions(home / ".claude", tree).glob("*.jsonl")
        assert "fix it" in copy.read_text()
        results = copy.with_suffix("") / "tool-results"
        assert [path.name for path in results.iterdir()] == ["1.txt"]
        # Its worktree is not there yet: the desk gets a copy in the repository.
        said = await told(parent, "terminal", "100.3", thread="100.1")
        assert f"cd {git_repo} && claude --resume " in said
        new = said.partition("--resume ")[2][:36]
        assert f"say `!continue {new}`" in said
        assert claude_sessions(home / ".claude", git_repo).joinpath(f"{new}.jsonl").is_file()


async def test_kimis_session_is_called_by_its_name_and_needs_its_key_at_the_desk(tmp_path: Path) -> None:
    kimi_session(home_of(tmp_path), tmp_path, ("draw it", "Drawn."))
    given = settings(tmp_path)
    kimi = KimiSection(api_key=KEY, model="k2", base_url="https://kimi.test/v1")
    given = msgspec.structs.replace(given, config=msgspec.structs.replace(given.config, kimi=kimi))
    async with worker(given) as parent:
        said = await told(parent, "continue", "100.1", KIMI_ID)
        assert "Write `kimi: …` in this thread to continue it" in said
        said = await told(parent, "terminal", "100.3", thread="100.1")
        key = 'KIMI_MODEL_NAME=k2 KIMI_MODEL_BASE_URL=https://kimi.test/v1 KIMI_MODEL_API_KEY="$KIMI_API_KEY"'
        assert f"{key} kimi --session {KIMI_ID}" in said
        assert KEY not in said


async def test_the_list_outside_threads_shows_what_was_begun_in_a_terminal(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        assert "No Claude Code or Kimi Code session" in await told(parent, "terminal", "100.1")
        claude_session(home_of(tmp_path), tmp_path, ("fix <it>", "Fixed."))
        said = await told(parent, "terminal", "200.1")
        assert "• fix &lt;it&gt; · Claude Code · " in said
        assert f"`!continue {CLAUDE_ID}`" in said
        assert terminal.NO_SESSION.partition(":")[0] in await told(
            parent, "terminal", "300.3", thread="300.1"
        )


async def test_while_it_works_nobody_is_sent_to_a_terminal(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("go", "100.1")
        await parent.run(0)
        assert "still working" in await told(parent, "terminal", "100.3", thread="100.1")


async def test_a_session_is_taken_over_outside_threads_and_in_the_channel_only(tmp_path: Path) -> None:
    claude_session(home_of(tmp_path), tmp_path, ("fix it", "Fixed."))
    async with worker(settings(tmp_path)) as parent:
        assert "outside threads" in await told(parent, "continue", "100.3", CLAUDE_ID, thread="100.1")
        assert "to list them" in await told(parent, "continue", "200.1", "bbbbbbbb")
        event = posted(channel="D0ANA", ref="300.1", user=USER, text="!continue")
        parent.deliver(event, Command(name="continue", argument=CLAUDE_ID))
        await parent.post_with("Say it in the repository's channel")


async def test_who_may_not_use_its_agent_may_not_take_it_over(tmp_path: Path) -> None:
    claude_session(home_of(tmp_path), tmp_path, ("my private words", "Fixed."))
    given = settings(tmp_path)
    rule = AuthorizationRule(channels=(CHANNEL,), users=("*",), allowed_prefixes=("kimi",))
    ruled = msgspec.structs.replace(given.config, authorization=AuthorizationSection(rules=(rule,)))
    async with worker(msgspec.structs.replace(given, config=ruled)) as parent:
        said = await told(parent, "continue", "100.1", CLAUDE_ID)
        assert "You are not authorized to use `claude:` here" in said
        assert "private" not in "".join(text_of(post) for post in parent.posts if isinstance(post, Post))


def test_kimis_copy_belongs_to_its_new_directory(tmp_path: Path) -> None:
    from codebutler_worker.agents.shared_sessions import brought_to

    repo, tree = tmp_path / "repo", tmp_path / "tree"
    repo.mkdir()
    tree.mkdir()
    kimi_session(tmp_path, repo, ("draw it", "Drawn."))
    copied = brought_to(tmp_path, "kimi", KIMI_ID, repo, tree)
    directory = kimi_sessions(tmp_path / ".kimi-code", tree)
    state = msgspec.json.decode((directory / copied / "state.json").read_bytes())
    assert (state["id"], state["cwd"]) == (copied, str(tree))
    assert state["agents"]["main"]["homedir"] == str(directory / copied / "agents" / "main")
    wire = (directory / copied / "agents" / "main" / "wire.jsonl").read_text()
    assert f'"workspaceId":"{directory.name}"' in wire
