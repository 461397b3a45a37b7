"""Every message has a golden file: changing a shape without a new protocol version shows here."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import ProtocolError
from codebutler.domain.message import (
    ApprovalCard,
    Button,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
    said,
)
from codebutler.domain.model import (
    Asked,
    Command,
    File,
    NoRequest,
    Post,
    Prompt,
    Quoted,
    React,
    TurnNote,
    Update,
    Upload,
)
from codebutler.protocol.conversations import (
    AskDiff,
    AskedTold,
    AskFound,
    AskThread,
    ChangedFile,
    FoundRun,
    FoundTold,
    RunChanges,
    RunTold,
    SaidTold,
    ThreadTold,
    Traced,
    WorkSpan,
)
from codebutler.protocol.messages import (
    Audit,
    Budget,
    Configure,
    DayUse,
    Deliver,
    Doing,
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    Goodbye,
    Heartbeat,
    Hello,
    LimitUse,
    Live,
    Log,
    LookAtPulls,
    Overview,
    Ready,
    Send,
    SendFailed,
    Sent,
    Shutdown,
    StopTurns,
    Stored,
    ThreadFetched,
    ToParent,
    TotalUse,
    ToWorker,
    TurnEnded,
    TurnStarted,
    UploadPiece,
)
from codebutler.protocol.pipe import HEADER, to_parent_codec, to_worker_codec
from tests.events import clicked, deleted, edited, posted, slashed

GOLDEN = Path(__file__).parents[2] / "golden" / "protocol"

POSTED = posted(
    channel="C01",
    ref="1700000000.000100",
    user="U01",
    text='fix "it"\n<now>',
    thread="1690000000.000100",
    files=(File(id="F01", name="a.png", mimetype="image/png", size_bytes=3, url="https://files.example/a"),),
    mentioned=True,
)
EDITED = edited(channel="C01", ref="1.0", user="U01", text="no", edit="2.0")
CLICKED = clicked(
    channel="C01", user="U01", message="1.0", action_id="codebutler.stop", value="turn", press="2.0"
)
SLASH = slashed(channel="C01", user="U01", command="/butler", text="status", invocation="7.8")

TO_WORKER: dict[str, object] = {
    "configure": Configure(
        settings=RepoSettings(
            name="shop",
            path="/srv/shop",
            channel_id="C01",
            config=Config(),
            agent_env={"LANG": "C.UTF-8"},
        )
    ),
    "total_use": TotalUse(
        day=DayUse(runs=2, tokens=300, usd=0.5, minutes=1.5),
        until="2026-01-02T00:00:00+00:00",
        month=DayUse(runs=20, tokens=3000, usd=5.0, minutes=15.0),
        month_until="2026-02-01T00:00:00+00:00",
    ),
    "deliver": Deliver(seq=7, event=POSTED, request=Prompt(text='fix "it"', prefix="claude")),
    "deliver-traced": Deliver(
        seq=7,
        event=POSTED,
        request=Prompt(text="go"),
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "deliver-edit": Deliver(seq=8, event=EDITED, request=Prompt(text="no")),
    "deliver-delete": Deliver(
        seq=9, event=deleted(channel="C01", ref="1.0", user="U01"), request=NoRequest()
    ),
    "deliver-click": Deliver(seq=10, event=CLICKED, request=NoRequest()),
    "deliver-slash": Deliver(seq=11, event=SLASH, request=Command(name="status", argument="-v")),
    "sent": Sent(op_id="op-1", ref="1700000000.000200"),
    "send_failed": SendFailed(op_id="op-1", code="channel_not_found"),
    "stop_turns": StopTurns(user="U01"),
    "file_chunk": FileChunk(
        request_id="r-1", data=b"\x00\xff", last=True, file=File(id="F01", name="a.png", mimetype="image/png")
    ),
    "file_transcript": FileTranscript(request_id="r-1", text="run the tests"),
    "thread_fetched": ThreadFetched(
        request_id="r-1",
        said=(Quoted(ref="1.0", user="U02", name="Ana", text="why?", allowed=True),),
        left_out=3,
    ),
    "fetch_failed": FetchFailed(request_id="r-1", code="too_large"),
    "ask_diff": AskDiff(request_id="r-1", turn="t1"),
    "ask_thread": AskThread(request_id="r-1", turn="t1"),
    "ask_found": AskFound(request_id="r-1", words="linker fails"),
    "look_at_pulls": LookAtPulls(numbers=(7, 12)),
    "shutdown": Shutdown(reason="sleep", grace_s=10.0),
}

APPROVALS = ApprovalCard(
    (PermissionRequest(id="r1", texts=("🔐 `ls`",), scope="it", needed=2, votes=("Ana",)),)
)
QUESTIONS = QuestionCard(
    (Question(id="q1", text="Which?", options=(Option("a", "the first"), Option("b")), several=True),),
    ("q1:0",),
)

TO_PARENT: dict[str, object] = {
    "hello": Hello(version=4, pid=4711),
    "ready": Ready(),
    "stored": Stored(seq=7),
    "send": Send(
        op_id="op-1",
        operation=Post(
            message=Message(
                markdown="done", buttons=(Button("Stop", "codebutler.stop", "t1", "danger"),), names=("U1",)
            ),
            thread="1.0",
        ),
        unsure=True,
    ),
    "send-card": Send(op_id="op-5", operation=Post(message=Message(card=APPROVALS))),
    "send-questions": Send(op_id="op-6", operation=Update(target="1.0", message=Message(card=QUESTIONS))),
    "send-update": Send(op_id="op-2", operation=Update(target="1.0", message=said("going on"))),
    "send-react": Send(op_id="op-3", operation=React(target="1.0", mark="working", remove=True)),
    "send-upload": Send(op_id="op-4", operation=Upload(filename="a.bin", content=b"\x00\xff", title="A")),
    "fetch_thread": FetchThread(request_id="r-1", thread="1.0", before="2.0"),
    "fetch": Fetch(request_id="r-1", file_id="F01"),
    "overview": Overview(
        turns=(
            TurnNote(
                state="done",
                thread="1.0",
                text="fix it",
                agent="claude",
                at="2026-01-01T00:00:00+00:00",
                cost_usd=0.5,
                id="turn",
                card="1.2",
                asked=(
                    Asked(
                        id="ask",
                        card="1.1",
                        text="Which?",
                        options=("a", "b"),
                        is_question=True,
                        several=True,
                    ),
                ),
            ),
        )
    ),
    "budget": Budget(
        limits=(LimitUse(unit="usd", used=1.2, limit=5.0),),
        until="2026-01-02T00:00:00+00:00",
        used=DayUse(runs=3, tokens=6912, usd=1.2, minutes=2.5),
    ),
    "turn_started": TurnStarted(thread="1.0", messages=("1.0", "1.1")),
    "turn_ended": TurnEnded(op_id="op-5", thread="1.0", messages=("1.0", "1.1"), outcome="failed"),
    "upload_piece": UploadPiece(op_id="op-4", data=b"\x00\xff"),
    "doing": Doing(thread="1.0", text="is working: Bash: ls"),
    "live": Live(thread="1.0", kind="tool", text="Bash: ls"),
    "heartbeat": Heartbeat(running=1, queued=2, waiting=3, parked=1, outbox=4, followed=1),
    "log": Log(tag="MSG", text="U01: hello"),
    "audit": Audit(
        user="U01", thread="1.0", kind="run", text="ls", decision="allowed", exit_code=0, duration_s=0.5
    ),
    "run_changes": RunChanges(
        request_id="r-1",
        thread="1.0",
        agent="claude",
        task="Round prices",
        at="2026-01-01T12:00:00+00:00",
        files=(
            ChangedFile(path="a.py", old="b.py", added=1, removed=2, is_shown=True),
            ChangedFile(path="logo.png"),
        ),
        more=1,
        commits=("1a2b3c4 Round prices once",),
        body=b"diff --git a/a.py b/a.py\n\xff",
        is_cut=True,
    ),
    "thread_told": ThreadTold(
        request_id="r-1",
        thread="1.0",
        runs=(
            RunTold(
                id="t1",
                state="done",
                agent="claude",
                at="2026-01-01T12:00:00+00:00",
                said=(SaidTold(user="U01", at="2026-01-01T11:59:00+00:00", text="why?"),),
                decided=("Permission allowed by U01. Bash",),
                answer="Because.",
                is_cut=True,
                cost_usd=0.12,
                changed=True,
            ),
        ),
        has_more=True,
        asked=(AskedTold(asked=Asked(id="p1", card="1.1", text="1. look"), is_foreign=True),),
    ),
    "found_told": FoundTold(
        request_id="r-1",
        runs=(
            FoundRun(
                id="t1",
                thread="1.0",
                agent="claude",
                at="2026-01-01T12:00:00+00:00",
                title="why?",
                text="the **linker** fails",
            ),
        ),
    ),
    "traced": Traced(
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        spans=(
            WorkSpan(name="queued", began=1_700_000_000_000_000_000, ended=1_700_000_001_000_000_000),
            WorkSpan(
                name="tool", began=1_700_000_001_000_000_000, ended=1_700_000_002_000_000_000, label="Bash"
            ),
        ),
    ),
    "goodbye": Goodbye(reason="sleep"),
}

CASES = [(name, message, to_worker_codec()) for name, message in TO_WORKER.items()] + [
    (name, message, to_parent_codec()) for name, message in TO_PARENT.items()
]


@pytest.mark.parametrize(("name", "message", "codec"), CASES, ids=[case[0] for case in CASES])
def test_a_message_is_what_its_golden_file_says(name: str, message: object, codec: object) -> None:
    body = codec.encode(message)[HEADER.size :]  # type: ignore[attr-defined]  # either codec
    golden = GOLDEN / f"{name}.json"
    assert msgspec.json.format(body, indent=2).decode() + "\n" == golden.read_text(encoding="utf-8")
    assert codec.decode(golden.read_bytes()) == message  # type: ignore[attr-defined]  # either codec


def test_every_member_of_both_unions_has_a_golden_file() -> None:
    covered = {type(message) for message in (*TO_WORKER.values(), *TO_PARENT.values())}
    assert covered == {*get_args(ToWorker), *get_args(ToParent)}
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*TO_WORKER, *TO_PARENT}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"not json",
        b'"\xff\xfe"',
        b'{"type":"ready"',
        b'{"type":"unheard_of"}',
        b'{"type":"ready","extra":1}',
        b'{"type":"stored","seq":"7"}',
        b'{"type":"stored"}',
        b'{"type":"sent","op_id":"a","ref":"1"}',
        b'{"type":"log","tag":"XXXX","text":""}',
        b'{"type":"send","op_id":"a","operation":{"kind":"delete"}}',
        b'{"type":"send","op_id":"a","operation":{"kind":"upload","filename":"a","content":"%%"}}',
        b"[" * 100_000,
        b'{"type":"fetch","request_id":"%s","file_id":"F1"}' % (b"r" * 101),
        b'{"type":"fetch","request_id":"r","file_id":"%s"}' % (b"F" * 101),
        b'{"type":"fetch_thread","request_id":"r","thread":"1","before":"%s"}' % (b"1" * 101),
        b'{"type":"send","op_id":"%s","operation":{"kind":"react","target":"1","name":"x"}}' % (b"o" * 101),
        b'{"type":"doing","thread":"%s","text":""}' % (b"1" * 101),
        b'{"type":"heartbeat","running":-1}',
        b'{"type":"heartbeat","outbox":1000001}',
        b'{"type":"budget","used":{"usd":-1}}',
        b'{"type":"budget","used":{"tokens":%d}}' % 10**18,
    ],
    ids=range(25),
)
def test_what_is_not_a_message_for_the_parent_is_a_typed_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        to_parent_codec().decode(body)


def test_a_message_for_the_other_side_is_refused() -> None:
    codec = to_worker_codec()
    with pytest.raises(ProtocolError):
        codec.decode(codec.encode(Ready())[HEADER.size :])


def test_a_worker_is_told_no_slack_token_by_default() -> None:
    assert b"xoxb" not in to_worker_codec().encode(TO_WORKER["configure"])
