"""The native agent at work in containers of a real docker daemon: its tools and its terminal do there what they do
behind other walls, and nothing of it is left."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler_worker.sandbox.docker import DockerSandbox
from tests.dockerd import made_by
from tests.integration.native.conftest import Studio, says, session_of
from tests.integration.native.tasks import do, edit, read, run, search
from tests.ordinary import give_away
from tests.turns import end

RUN = "run_terminal_command"


async def test_a_task_in_a_container(studio: Studio, tmp_path: Path, docker_host: str) -> None:
    (studio.repo / "src" / "deep").mkdir()
    (studio.repo / ".gitignore").write_text("*.log\n")
    (studio.repo / "a.log").write_text("hello\n")
    sandbox = studio.sandbox = DockerSandbox(host=docker_host)
    give_away(tmp_path)
    events = await studio.run(
        "be polite",
        do(search("hello"), read("src/app.py"), ("list_files", {})),
        do(
            edit("src/app.py", "hello", "good day"),
            ("write_file", {"path": "made.txt", "content": "by us\n"}),
        ),
        do(run("cd src/deep; WORD=kept; id -u; cat /proc/net/dev | grep -c : ; ls -d ~ /root 2>&1 | wc -l")),
        do((RUN, {"command": "read answer; echo got $answer; sleep 1000", "wait_s": 0})),
        do((RUN, {"type": "this\n", "wait_s": 1})),
        do((RUN, {"signal": "CTRL_C", "wait_s": 60})),
        do(run('echo "$WORD in $PWD"')),
        says("It is polite."),
    )
    assert end(events).ok, end(events)
    assert (studio.repo / "made.txt").read_text() == "by us\n"
    assert (studio.repo / "made.txt").stat().st_uid == studio.repo.stat().st_uid
    assert "good day" in (studio.repo / "src" / "app.py").read_text()
    told = studio.told()
    assert "src/app.py:2:" in told[0]
    assert "a.log" not in told[0] + told[2]
    assert "good day" in told[3]
    assert "(still running)" in told[6]
    assert "got this" in told[7] + told[8]
    assert "(exit code 130" in told[8]
    assert f"kept in {studio.repo}/src/deep" in told[9]

    # The log names the container; the next turn stands where this one left.
    calls = [line for line in studio.log() if line["event"] == "tool"]
    assert len(calls) == len(told)
    assert all(line["container_id"].startswith("codebutler-") for line in calls)
    await studio.run("where?", do(run("pwd")), says("There."), session_id=session_of(events))
    assert f"{studio.repo}/src/deep" in studio.told()[-1]
    await sandbox.close()
    assert made_by(docker_host, os.getpid()) == []
