"""Runs inside the fresh environment, isolated from the checkout: is everything there, and nothing else?"""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = [
    "codebutler.parent.bootstrap",
    "codebutler.web.dashboard.site",
    "codebutler.workspace.server",
    "codebutler_worker.worker.bootstrap",
    "codebutler_migrations",
]
FILES = [
    ("codebutler", "py.typed"),
    ("codebutler.web.dashboard", "static/index.html"),
    ("codebutler.web.dashboard", "static/js/main.js"),
    ("codebutler.workspace", "static/index.html"),
    ("codebutler.workspace", "static/js/main.js"),
    ("codebutler.config", "bundled_skills/review-diff/SKILL.md"),
]
ABSENT = ["workers", "migrations", "tests", "docs", "bench"]


def main(command: str) -> int:
    faults = [*_modules(), *_files(), *_strays(), *_command(command), *_cluster(command), *_demo(command)]
    for fault in faults:
        print(f"wheel: {fault}", file=sys.stderr)
    print(f"wheel: {'failed' if faults else 'ok'}")
    return 1 if faults else 0


def _modules() -> list[str]:
    faults = []
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            faults.append(f"cannot import {name}: {error}")
    return faults


def _files() -> list[str]:
    return [
        f"{package}/{path} is missing"
        for package, path in FILES
        if not importlib.resources.files(package).joinpath(path).is_file()
    ]


def _strays() -> list[str]:
    return [f"{name} must not be importable" for name in ABSENT if importlib.util.find_spec(name)]


def _command(command: str) -> list[str]:
    done = subprocess.run([command, "--help"], capture_output=True, text=True)
    return [] if done.returncode == 0 and "supervise" in done.stdout else [f"--help: {done.stderr}"]


def _cluster(command: str) -> list[str]:
    """Without the extra, what needs NATS says which one; everything else here works without."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {"PATH": os.environ["PATH"], "HOME": scratch, "LANG": "C.UTF-8"}
        done = subprocess.run([command, "gateway"], env=env, capture_output=True, text=True)
    told = done.returncode == 78 and "codebutler[cluster]" in done.stderr
    return [] if told and importlib.util.find_spec("nats") is None else [f"gateway: {done.stderr}"]


def _demo(command: str) -> list[str]:
    """The whole product from the wheel: migrations run, a worker starts, a message is answered."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {"PATH": os.environ["PATH"], "HOME": scratch, "LANG": "C.UTF-8"}
        arguments = [command, "demo", "--no-browser", "--port", "0", "--json", "--agent", "rehearsal"]
        demo = subprocess.Popen(arguments, cwd=scratch, env=env, stdout=subprocess.PIPE, text=True)
        assert demo.stdout is not None
        try:
            started = json.loads(demo.stdout.readline() or "{}")
            if not started.get("url"):
                return ["demo printed no address"]
            send = [command, "send", started["repo"], "list the files", "--wait"]
            home = {**env, "CODEBUTLER_HOME": started["home"]}
            answer = subprocess.run(send, env=home, capture_output=True, text=True, timeout=60)
            return (
                []
                if "README.md" in answer.stdout
                else [f"demo did not answer: {answer.stdout}{answer.stderr}"]
            )
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait(20)


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]))))
