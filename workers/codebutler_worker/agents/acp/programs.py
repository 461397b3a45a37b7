"""Programs that are scripts: what runs them, and what of the disk they need to be run inside walls."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import look_up
from codebutler_worker.programs.program import program_root

FIRST_LINE_BYTES = 256


@dataclass(frozen=True, slots=True)
class Program:
    """How it is called, without arguments, and the paths outside the system that it reads itself from."""

    argv: tuple[str, ...]
    readable: tuple[Path, ...]


def program(binary: Path, path: str, repo: Path, home: Path) -> Program:
    """How to call ``binary``. What `env` would look up by name is looked up here, by the same rules as the program,
    and beside it, where nvm and its like keep a program's Node.

    Raises AgentUnavailableError if the interpreter that a script names is not there.
    """
    path = os.pathsep.join((path, str(binary.parent)))
    binary = binary.resolve()
    words = interpreter(first_line(binary))
    readable = [root_of(binary, home)]
    if not words:
        return Program((str(binary),), tuple(readable))
    if Path(words[0]).name == "env":
        named = [word for word in words[1:] if word != "-S"]
        found = look_up(named[0], path, repo) if named else None
        if found is None:
            wanted = named[0] if named else "interpreter"
            raise AgentUnavailableError(
                f"{binary.name} needs {wanted}, which is not on the supervisor's PATH"
            )
        found = found.resolve()
        return Program((str(found), *named[1:], str(binary)), (*readable, found))
    runs = Path(words[0])
    # A link into another installation, as of a virtual environment: that one is needed too.
    real = runs.resolve()
    if not real.is_relative_to("/usr") and not home.is_relative_to(real.parent.parent):
        readable.append(real.parent.parent)
    return Program((str(binary),), tuple(readable))


def first_line(binary: Path) -> str:
    """The script's first line, "" for anything but a readable script."""
    try:
        with binary.open("rb") as file:
            line = file.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    return line.decode(errors="replace") if line.startswith(b"#!") else ""


def interpreter(line: str) -> list[str]:
    """The words after ``#!``, none if it is no script."""
    try:
        return shlex.split(line.removeprefix("#!")) if line.startswith("#!") else []
    except ValueError:
        return []


def root_of(binary: Path, home: Path) -> Path:
    """The smallest directory with all of the program: its Node modules, its virtual environment, or where it lies."""
    for parent in reversed(binary.parents):
        if parent.name == "node_modules":
            return parent
    for parent in binary.parents:
        if (parent / "pyvenv.cfg").is_file():
            return parent
    return program_root(binary, home)
