"""What leaves this machine: ``!push`` sends commits to the remote, ``!pr`` opens a pull request for them."""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler.text.wording import count, one_line
from codebutler_worker.commands.table import Invocation
from codebutler_worker.forge.following import follow
from codebutler_worker.forge.news import is_merge_request, pull_link, pull_name
from codebutler_worker.forge.push import (
    OpenedPull,
    PushResult,
    Tip,
    body_of,
    open_pull,
    service_of,
    tip_of,
    title_of,
)
from codebutler_worker.forge.push import push as send
from codebutler_worker.forge.remote import ForgeError
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, words_of
from codebutler_worker.store.rows import DeferredRow
from codebutler_worker.store.unit_of_work import UnitOfWork

HOW_TO_LOG_IN = "To open it from here next time, run `gh auth login` on this machine, or set `forge.token`."
NO_SERVICE = "The remote is a directory, so there is no pull request to open."
COMMITS_SHOWN = 5
SUBJECT_CHARS = 72
IN_A_THREAD = (
    "Each thread has its own branch here: say `!{word}` in the thread whose commits you want to push."
)


class ForgeStep(Struct, frozen=True, omit_defaults=True):
    """How far a push has got, as a deferred command's argument: what was asked and, once known, what is pushed. That
    no longer changes when the command is retried."""

    force: bool = False
    title: str = ""
    tip: Tip | None = None


def push(invocation: Invocation) -> Todo:
    """Deferred: git and the remote have to be asked."""
    return _defer(invocation, ForgeStep(force=invocation.argument.lower() == "force"))


def pull(invocation: Invocation) -> Todo:
    """The same, and then the service."""
    return _defer(invocation, ForgeStep(title=invocation.argument))


def _defer(invocation: Invocation, step: ForgeStep) -> Todo:
    if invocation.conversation is None and invocation.settings.config.agent.isolation == "worktree":
        return invocation.reply(IN_A_THREAD.format(word=invocation.command.name))
    return invocation.defer(_encode(step))


def _encode(step: ForgeStep) -> str:
    return msgspec.json.encode(step).decode()


async def answer_push(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Decide what is pushed, then push."""
    step = msgspec.json.decode(command.argument, type=ForgeStep)
    if step.tip is None:
        return await _decide_tip(runtime, command, step)
    pushed, _ = await _push(runtime, command, step.tip, force=step.force)
    return CommandReply((said(render_push(pushed, step.tip)),))


async def answer_pull(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Decide what is pushed, push, and open the pull request: each step can be retried."""
    step = msgspec.json.decode(command.argument, type=ForgeStep)
    if step.tip is None:
        return await _decide_tip(runtime, command, step)
    pushed, task = await _push(runtime, command, step.tip)
    settings = runtime.settings
    try:
        service = service_of(settings, pushed.remote, runtime.home.root)
        if service is None:
            hint = HOW_TO_LOG_IN if pushed.remote.host else NO_SERVICE
            return CommandReply((said(f"{render_push(pushed, step.tip)}\n{hint}"),))
        body = await runtime.commit(lambda uow: body_of(uow, settings, command.conversation, pushed))
        opened = await open_pull(runtime, service, pushed, title_of(step.title, pushed, task), body)
    except ForgeError as error:
        why = plain(runtime.redactor.redact(str(error)))
        return CommandReply(
            (said(f"{render_push(pushed, step.tip)}\n❌ No pull request was opened: {why}"),), ok=False
        )
    await runtime.commit(lambda uow: follow(uow, settings, command, pushed.remote, opened))
    runtime.followed.set()
    runtime.log("INF", f"{command.user_id}: pull request {pull_name(pushed.remote, opened.pull)}")
    text = f"{_render_pull(pushed, opened)}\n{render_push(pushed, step.tip, link=False)}"
    return CommandReply((said(text),))


async def _decide_tip(runtime: Runtime, command: DeferredRow, step: ForgeStep) -> CommandReply:
    tip = await tip_of(runtime, command.conversation)
    return CommandReply(then=_encode(structs.replace(step, tip=tip)))


async def _push(
    runtime: Runtime, command: DeferredRow, tip: Tip, *, force: bool = False
) -> tuple[PushResult, str]:
    task = await runtime.commit(lambda uow: first_prompt(uow, command.conversation))
    pushed = await send(runtime, command.conversation, tip, task, force=force)
    runtime.log(
        "INF", f"{command.user_id} pushed {pushed.commit[:12]} to {pushed.branch}, {pushed.remote.shown}"
    )
    return pushed, task


def first_prompt(uow: UnitOfWork, conversation: str) -> str:
    """The conversation's first prompt."""
    turns = uow.turns.find(newest=200, conversation=conversation)
    return words_of(uow, turns[-1]) if turns else ""


def _render_pull(pushed: PushResult, opened: OpenedPull) -> str:
    what = "opened" if opened.is_new else "updated"
    kind = "Merge request" if is_merge_request(opened.pull) else "Pull request"
    return f"🔗 {kind} {pull_link(pushed.remote, opened.pull)} {what}."


def render_push(pushed: PushResult, tip: Tip, *, link: bool = True) -> str:
    """What was pushed where, as Markdown."""
    destination = f"{code(pushed.branch)} on {plain(pushed.remote.shown)}"
    lines = [f"☑️ {destination} is already up to date." if pushed.was_there else f"⬆️ Pushed to {destination}."]
    if tip.branch and pushed.branch != tip.branch:
        lines.append(f"{code(tip.branch)} is protected, so this is a separate branch.")
    lines += [
        f"- {code(name)} {plain(one_line(subject, SUBJECT_CHARS))}"
        for name, subject in pushed.commits[-COMMITS_SHOWN:]
    ]
    if (more := len(pushed.commits) - COMMITS_SHOWN) > 0:
        lines.append(f"- … and {count(more, 'earlier commit')}")
    if tip.uncommitted:
        files = count(tip.uncommitted, "file")
        lines.append(f"⚠️ {files} {'is' if tip.uncommitted == 1 else 'are'} not committed, so not included.")
    if link and pushed.link:
        lines.append(f"[Open a pull request]({pushed.link})")
    return "\n".join(lines)
