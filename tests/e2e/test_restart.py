"""`codebutler restart`: a supervisor that is replaced in place.

| case | what happens |
|---|---|
| R01 | at rest: the same process with new workers; its port is never closed, its helpers are gone, and it answers |
| R02 | while Claude Code works: the thread is told, and the run goes on by itself, once |
| R03 | a demo's own supervisor, or none at all: refused in a line |
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from codebutler.platform.system import this_system
from tests.e2e.house import house, whole_text
from tests.e2e.test_approvals import model_env
from tests.e2e.test_limits import working
from tests.e2e.test_matrix import QUICK, rehearsal
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require


def socket_of(pid: int, port: int) -> set[str]:
    """The listening sockets of a process at that port."""
    listening = {
        row.split()[9]
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
    }
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        target = str(each.readlink())
        held |= {target[8:-1]} & listening if target.startswith("socket:[") else set()
    return held


async def test_r01_it_is_replaced_in_place(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        assert built.supervisor is not None
        first = await built.until_status(lambda status: bool(status["dashboard"]["url"]))
        port = urlsplit(first["dashboard"]["url"]).port
        assert port is not None
        before = socket_of(built.supervisor.pid, port)
        helpers = set(this_system().children(built.supervisor.pid))
        told = await built.run("restart")
        assert f"Restarted: pid {built.supervisor.pid}, version" in told
        after = await built.until_status(lambda status: status["repos"][0]["worker"]["state"] == "running")
        assert after["repos"][0]["worker"]["pid"] != first["repos"][0]["worker"]["pid"]
        assert after["dashboard"] == first["dashboard"]
        assert socket_of(built.supervisor.pid, port) == before
        assert len(before) == 1
        assert helpers.isdisjoint(this_system().children(built.supervisor.pid))
        ts = await built.say(channel, "list the files")
        await built.answer(channel, ts, "README.md")
        assert await built.stop() == 0


async def test_r02_a_run_under_way_goes_on(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await working(built, git_repo)
        model.play(Reply("Too late.", hold=True), Reply("Done after all."))
        ts = await built.say(channel, "take your time")
        await model.seen(1)
        await built.run("restart")
        await built.answer(channel, ts, "Done after all.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        texts = [whole_text(each) for each in built.answers(channel, ts)]
        assert sum("CodeButler is restarting. This run resumes" in text for text in texts) == 1
        assert not any("machine stopped" in text or "Too late" in text for text in texts)
        assert len(model.requests) == 2
        assert "take your time" in json.dumps(model.requests[-1])


async def test_r03_without_a_supervisor_there_is_nothing_to_restart(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        assert await built.stop() == 0
        refused = await built.run("restart", check=False)
        assert "No supervisor runs on this home" in refused
