"""The commands: the one table behind ``!word``, ``/butler word``, ``/word``, ``!help``, completion, the chats
and the docs. To add a command, add an entry here and write its handler (see CONTRIBUTING.md).

Pure. Both processes read it: to tell a word from a prompt, who may say it, and to do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.domain.word import Word

SLASH = "/butler"
IN_THREADS = f"Slash commands may not work in threads: there, write `!word` instead of `{SLASH} word`."


ALL = (
    Word(
        "help",
        "list commands",
        "[COMMAND]",
        r"!?[\w-]*",
        "With a command: shows its details.",
        direct="answers.usage",
        handler="showing.usage",
    ),
    Word("ping", "check that CodeButler answers", handler="showing.ping"),
    Word(
        "status",
        "show what is running and what is waiting",
        more="With the agent and its model, unfinished runs, today's usage, and the sandbox.",
        direct="answers.status",
        handler="showing.status",
    ),
    Word(
        "costs",
        "show what the runs here cost",
        "[DAYS]",
        r"|[1-9]\d{0,2}d?",
        "For the last seven days, or DAYS, by person, agent and day. In a direct message, for all your repositories.",
        direct="answers.costs_directly",
        handler="answers.costs",
        runs="parent",
    ),
    Word(
        "list",
        "list the latest conversations",
        more="Each with its state, its age, a link to its thread and its agent's session.",
        handler="showing.latest",
        direct="answers.latest",
    ),
    Word(
        "find",
        "search past conversations",
        "WORDS",
        ".+",
        "Searches questions and answers in this channel for all the words, and shows the best matches "
        "with links to their threads.",
    ),
    Word(
        "new",
        "start a new conversation, or create a repository",
        "[NAME [URL | PATH]]",
        r"|[a-z0-9][\w.-]{0,63}(\s+\S+)?",
        "In a thread, your next message starts a new session. Outside a thread, every message does. With NAME, it is "
        "`!new-repo`: `!help new-repo` shows its details.",
        handler="runs.new",
        with_argument="new-repo",
    ),
    Word(
        "continue",
        "resume interrupted or stopped work",
        "[SESSION]",
        r"|[\w-]{6,100}",
        "In a thread, resumes its last run. Outside threads, lets you choose from the newest. With the ID of a Claude "
        "Code or Kimi Code session started in a terminal, opens a thread that continues it.",
        shown=True,
        handler="runs.resume",
        may="continue",
        aliases=("resume",),
    ),
    Word(
        "terminal",
        "continue this conversation in a terminal",
        more="In a thread, shows the command that continues its session on the machine. Outside threads, lists the "
        "sessions started in a terminal in this repository.",
        may="continue",
    ),
    Word(
        "reset",
        "forget this conversation",
        more="Your next message in the thread starts a new session, which knows nothing of this one. Files stay as "
        "they are.",
        handler="runs.reset",
    ),
    Word(
        "stop",
        "stop running and cancel queued work",
        "[all]",
        "(all)?",
        "In a thread, only there. With `all`, or outside threads, in the whole channel. You can continue a stopped "
        "conversation.",
        handler="runs.stop",
    ),
    Word(
        "kill",
        "force stop",
        "[all]",
        "(all)?",
        "For when `!stop` is not enough.",
        handler="runs.kill",
    ),
    Word(
        "output",
        "repeat the full answer",
        more="Posts the full text of the last run in the thread, or in the channel; as a file if it is long.",
        handler="showing.output",
    ),
    Word(
        "agent",
        "choose this thread's agent, or give the built-in one a task",
        "[NAME | TASK]",
        ".*",
        "`!agent NAME` makes that agent answer here from now on; `!agent default` goes back; `!agent` alone shows "
        "which one answers, and which are available. `!agent TASK`, with several words, is the same as `agent: TASK`: "
        "the built-in agent works on it in many steps, and shows its plan.",
        prefix="agent",
        chooses=True,
        handler="choices.agent",
        shown=True,
    ),
    Word(
        "model",
        "choose this thread's model",
        "[NAME]",
        r"|\S+",
        "For the agent that answers here. Without NAME, shows the model; `default` goes back to the configured one.",
        handler="choices.model",
    ),
    Word(
        "mode",
        "choose how freely this thread's agent works",
        "[plan | ask | edit | full | default]",
        "(plan|ask|edit|full|default)?",
        "`plan` changes nothing before you approve a plan, `ask` asks before each change, `edit` may edit files, "
        "`full` asks nothing. A mode that needs fewer approvals than the configured one requires "
        "`authorization.mayLoosen`.",
        handler="choices.mode",
    ),
    Word(
        "claude", "ask Claude Code", "TASK", ".+", "The same as `claude: TASK`.", prefix="claude", shown=True
    ),
    Word("kimi", "ask Kimi Code", "TASK", ".+", "The same as `kimi: TASK`.", prefix="kimi", shown=True),
    Word(
        "c", "run one shell command", "COMMAND", ".+", "The same as `run: COMMAND`.", prefix="run", shown=True
    ),
    Word(
        "create-image",
        "generate an image",
        "DESCRIPTION",
        ".+",
        "For example `!create-image a lighthouse at dusk, watercolour`.",
        prefix="image",
        shown=True,
        aliases=("image",),
    ),
    Word(
        "logs",
        "show session logs",
        "[ID [PART[-PART]] | list | tail [N]]",
        r"|list|tail( \d{1,6})?|[\w.-]+( \d{1,5}(-\d{1,5})?)?",
        "`!logs tail N` shows the last N lines of output. A log above 20 MB comes in parts, at most 25 at once: "
        "`!logs ID 3-7` sends parts 3 to 7.",
        shown=True,
    ),
    Word(
        "jobs",
        "list scheduled jobs and timers",
        "[run | pause | resume NAME | cancel ID]",
        r"|(run|pause|resume|cancel)\s+\S+",
        "Jobs are defined in `.codebutler/jobs.yaml`. `cancel` cancels a timer.",
        handler="answers.jobs",
        runs="parent",
    ),
    Word(
        "in",
        "send a message later",
        "2h30m TEXT",
        r".+",
        "TEXT may be any message or command: `!in 2h run the tests again`, `!in 10m run: make deploy`.",
        shown=True,
        handler="answers.later",
        runs="parent",
    ),
    Word(
        "at",
        "send a message at a set time",
        "[DATE] 18:00 TEXT",
        r".+",
        "In the machine's local time.",
        shown=True,
        handler="answers.at",
        runs="parent",
    ),
    Word(
        "memory",
        "show what is remembered about this repository",
        "[forget N | undo]",
        r"|forget\s+\d{1,4}|undo",
        "Each fact with its age and the thread it comes from. `undo` undoes the last change; say it "
        "again to redo it.",
        handler="knowledge.memory",
    ),
    Word(
        "skills",
        "list skills",
        "[NAME WHAT]",
        r"|[a-z0-9][a-z0-9-]*(\s.*)?",
        "`!skills review-diff the last commit` has the default agent use the skill. See `codebutler skills`.",
        shown=True,
        may="skill",
        handler="knowledge.skills",
    ),
    Word(
        "agents",
        "list the available agents",
        more="Each with its version, and whether it is ready.",
        handler="showing.agents",
    ),
    Word(
        "diff",
        "show what has changed in the working tree",
        "[run]",
        "(run|turn)?",
        "Compared with the last commit, including new files. With `run`, the changes of the last run here.",
        handler="changes.diff",
    ),
    Word(
        "undo",
        "undo the last run's changes",
        more="Shows what would change, and asks first. Later changes and commits stay; ignored files and files above "
        "20 MB are not covered. Say it again to redo it.",
        shown=True,
        may="undo",
        handler="changes.undo",
    ),
    Word(
        "commit",
        "commit the last run's changes",
        "[MESSAGE]",
        r".*",
        more="Only those, with you as the author; without MESSAGE, the task is the message. Once per run.",
        shown=True,
        may="commit",
        handler="changes.commit",
    ),
    Word(
        "merge",
        "merge this thread's branch",
        "[MESSAGE]",
        r".*",
        "Into the branch checked out in the repository; rebases first if that has moved on. With "
        "MESSAGE, commits uncommitted changes first. Conflicts go back to the agent. Needs "
        "`agent.isolation` `worktree`.",
        shown=True,
        may="merge",
        handler="worktrees.merge",
    ),
    Word(
        "discard",
        "discard this thread's worktree",
        more="Asks first if there is unmerged work, and keeps a copy for 30 days.",
        shown=True,
        may="merge",
        handler="worktrees.discard",
    ),
    Word(
        "worktrees",
        "list the threads' worktrees",
        more="Each with its branch, uncommitted and unmerged work, and size.",
    ),
    Word(
        "race",
        "give two agents the same task, and pick the better result",
        "[AGENT AGENT:] TASK",
        ".+",
        "The same as `race: TASK`. Each works in its own worktree, the repository's checks run on both, and one "
        "card compares them: *Pick* merges one and removes the other. Without AGENT, the default agent and the next "
        "one that is ready.",
        shown=True,
        colon=True,
    ),
    Word(
        "checks",
        "run the repository's checks",
        more="Those in `checks` in the configuration, otherwise `make check`, `make test`, `npm test` or `pytest`, "
        "whichever the repository has. With `authorization.rules`, a rule must allow the prefix `checks`.",
        prefix="checks",
        text="checks",
        shown=True,
        handler="changes.checks",
    ),
    Word(
        "push",
        "push the commits made here",
        "[force]",
        "(force)?",
        "The machine pushes with its owner's credentials; agents never do. Commits on a protected "
        "branch go to a new branch. `force` replaces only what CodeButler pushed there before. With "
        "`authorization.rules`, a rule must allow the prefix `push`.",
        shown=True,
        may="push",
        handler="forge.push",
    ),
    Word(
        "pr",
        "push, and open a pull request",
        "[TITLE]",
        ".*",
        "It describes what was asked and answered in the thread; say it again to update it.",
        shown=True,
        may="push",
        handler="forge.pull",
    ),
    Word(
        "move",
        "move this repository to another host",
        "[HOST [force]]",
        r"|[a-z0-9][a-z0-9-]{0,31}(\s+(--)?force)?",
        "In a cluster. Without HOST, lists the hosts and which of them have the repository. Running work ends first, "
        "and new messages wait for the new host; sessions and uncommitted work stay on the old one's disk. `force` "
        "does not wait, for a host that is away. With `authorization.rules`, a rule must allow the prefix `move`.",
        shown=True,
        may="move",
        handler="answers.move",
        runs="parent",
    ),
    Word(
        "new-repo",
        "create a repository with its own channel",
        "NAME [URL | PATH]",
        r"[a-z0-9][\w.-]{0,63}(\s+\S+)?",
        "It is empty, a clone of URL, or the repository at PATH in `newRepos.root`; you are invited to the channel. "
        "Only for people in `newRepos.allow`.",
        shown=True,
        may="new",
        handler="answers.new_repo",
        runs="parent",
        anywhere=True,
    ),
)

WORDS: Mapping[str, Word] = MappingProxyType({word.name: word for word in ALL})
DIRECT: Mapping[str, Word] = MappingProxyType({word.name: word for word in ALL if word.direct})
ALIASES: Mapping[str, str] = MappingProxyType({alias: word.name for word in ALL for alias in word.aliases})


def word_of(name: str) -> Word | None:
    """The command of that name, or with that alias."""
    return WORDS.get(ALIASES.get(name, name))


def visible_only_to(user: PersonRef, name: str, argument: str) -> PersonRef:
    """The only user who sees the answer to a slash command; "" = the whole channel."""
    word = WORDS.get(name)
    return NO_PERSON if word is not None and word.shown and word.takes(argument) else user
