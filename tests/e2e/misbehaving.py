"""Claude Code as no real one can be made to behave: a program that speaks its protocol and does one bad thing.

The bad thing is the first word of the message it hears. ``MARKER`` is on the command line of what it starts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The test's own interpreter may lie where the sandbox shows nothing.
INTERPRETERS = ("/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3")

PROGRAM = r'''#!{python} -I
import json, os, signal, subprocess, sys, time
if "--version" in sys.argv:
    print("2.1.328 (Claude Code)"); sys.exit()
MARKER = "{marker}"
SESSION = sys.argv[-1]

def say(**line):
    sys.stdout.write(json.dumps(dict(line, session_id=SESSION)) + "\n")

def text(words):
    say(type="assistant", message=dict(content=[dict(type="text", text=words)]))

def result(words):
    usage = dict(input_tokens=1, output_tokens=1)
    say(type="result", subtype="success", is_error=False, num_turns=1, result=words, usage=usage)
    sys.stdout.flush()

def deaf():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

def flood():
    for tenth in range(30):
        due = time.monotonic() + 0.1
        for number in range(1000):
            text("line %d of tenth %d" % (number, tenth))
        sys.stdout.flush()
        time.sleep(max(0, due - time.monotonic()))
    result("That was a flood.")

def wide():
    sys.stdout.write("x" * (40 * 2**20) + "\n")
    result("That was wide.")

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c",
                "import signal, time; signal.signal(15, 1); signal.signal(1, 1); time.sleep(600)", MARKER])
        os._exit(0)
    os.wait()
    time.sleep(0.3)
    result("I left somebody behind.")

def linger():
    deaf()
    result("Done, and staying.")
    while True:
        time.sleep(600)

def mute():
    text("I was about to")
    sys.stdout.flush()
    os._exit(0)

def hang():
    deaf()
    text("Half of it is")
    sys.stdout.flush()
    while True:
        time.sleep(600)

def serve():
    """Works until it is told to go on."""
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)", MARKER])
    result("Served.")

for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "control_request":
        reply = dict(subtype="success", request_id=heard["request_id"], response=dict())
        say(type="control_response", response=reply)
        sys.stdout.flush()
    elif heard["type"] == "user":
        say(type="system", subtype="init", claude_code_version="2.1.328")
        sys.stdout.flush()
        deed = heard["message"]["content"].split()[0]
        {{"flood": flood, "wide": wide, "daemon": daemon, "linger": linger, "mute": mute, "hang": hang,
          "serve": serve}}.get(deed, lambda: result("Nothing bad."))()
'''


def write_program(directory: Path, marker: str) -> Path:
    """Make the program; returns its path."""
    interpreter = next((path for path in INTERPRETERS if Path(path).exists()), None)
    if interpreter is None:
        reason = "no system Python is installed: apt-get install python3"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    directory.mkdir(parents=True)
    program = directory / "claude"
    program.write_text(PROGRAM.format(python=interpreter, marker=marker))
    program.chmod(0o755)
    return program
