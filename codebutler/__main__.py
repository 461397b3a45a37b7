"""The entry point. Every error a user can cause ends here as one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence

from codebutler.cli import COMPLETION_VARIABLE
from codebutler.domain.errors import EXIT_FAILED, CodeButlerError

INTERRUPTED = 130
DEBUG_VARIABLE = "CODEBUTLER_DEBUG"
# What the library's validators say of an argument, and what we say.
EXPECTED = (
    (r"Input should be a valid integer.*", "expected a whole number"),
    (r"Input should be greater than or equal to (\S+)", r"expected at least \1"),
    (r"Input should be less than or equal to (\S+)", r"expected at most \1"),
    (r"Value error, ", ""),
    (r"^Invalid value: ", ""),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 ok, 1 failed, 2 usage, 78 configuration, 130 interrupted."""
    _open_standard_files()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: no locale makes an answer fail
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        if COMPLETION_VARIABLE in os.environ:
            return _complete(sys.argv[1:] if argv is None else argv)
        from codebutler.cli.app import PROGRAM, build

        result = build().main(args=argv, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except CodeButlerError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # the reader (`head`) has enough; without this the interpreter complains while it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last border: users get a line, never a traceback
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _open_standard_files() -> None:
    """Those that our caller closed (`>&-`): Python has None for each, and the next file would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _complete(words: Sequence[str]) -> int:
    from codebutler.cli.completion import candidates

    sys.stdout.writelines(f"{each}\n" for each in candidates(words))
    return 0


def _unexpected(error: Exception) -> int:
    from typer import Abort
    from typer._click.exceptions import ClickException

    from codebutler.platform.files import reason

    if isinstance(error, Abort):
        return INTERRUPTED
    if isinstance(error, ClickException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "codebutler"
        message = error.format_message().rstrip(".")
        for theirs, ours in EXPECTED:
            message = re.sub(theirs, ours, message)
        advice = "" if "`codebutler" in message else f": see `{path} --help`"
        return _fail(f"{message}{advice}", error.exit_code)
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{reason(error)}", EXIT_FAILED)
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # of pathlib
        return _fail("there is no such home directory: set HOME, and check names after ~", EXIT_FAILED)
    return _fail(
        f"unexpected {type(error).__name__}: please report this bug (set {DEBUG_VARIABLE}=1 for details)",
        EXIT_FAILED,
    )


def _fail(line: str, exit_code: int) -> int:
    from codebutler.cli.output import print_error

    print_error(line)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
