"""``codebutler doctor``: problems in detail, and the rest in a line; what agents can do, as a table; with ``--bundle``
an archive for a bug report, every file of which is shown first.

``codebutler sandbox build``: the image for agents with `sandbox.mode` `docker`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codebutler.cli.command import App
from codebutler.cli.context import environment, home
from codebutler.cli.output import (
    Style,
    is_interactive,
    notice,
    painted,
    print_json,
    print_line,
    printable,
    printable_lines,
    wrap,
)
from codebutler.cli.output import columns as terminal_columns
from codebutler.cli.prompts import ask
from codebutler.cli.serve import need_cluster
from codebutler.cluster.membership import MEMBERSHIP_FILE
from codebutler.config.programs import BASE, DOCKERFILE, RUNNER, TOOLS
from codebutler.domain.errors import EXIT_USAGE, CodeButlerError, ConfigError
from codebutler.protocol.messages import Finding, Level, fail

if TYPE_CHECKING:
    from codebutler.protocol.capabilities import AgentResult, Cell


CLEAR = "\r\x1b[K"
STYLES: dict[Level, Style] = {"ok": "green", "warn": "yellow", "FAIL": "red"}
SIGNS: dict[str, tuple[str, Style]] = {
    "yes": ("yes", "green"),
    "no": ("NO", "red"),
    "not supported": ("-", "dim"),
    "not tried": ("?", "yellow"),
}
LEGEND = "yes: it works   NO: it does not   -: not supported   ?: not tried"
BUNDLE_NAME = "codebutler-report.zip"
QUESTION = "Write the archive? It contains exactly what is shown above (y/n)"
app = App("Manage the sandbox.")


def run(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Also try what each ready agent can do, in up to nine short runs each."),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Also show the checks that passed.")] = False,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Show an anonymous archive for a bug report, then write it.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="With --bundle: the archive's path.", metavar="FILE")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --bundle: write it without asking.")] = False,
) -> None:
    """Check tokens, scopes, channels, agents, sandbox, stores, disk and clock; exit code 1 if something fails."""
    if not bundle and (output or yes):
        raise typer.BadParameter("--output and --yes require --bundle")
    if bundle and as_json:
        raise typer.BadParameter("--bundle writes an archive: leave out --json")
    findings, rows = asyncio.run(_examine(live=live, shown=not as_json))
    if bundle:
        write_bundle(findings, output, yes=yes)
        return
    counts = {level: sum(each.level == level for each in findings) for level in ("ok", "warn", "FAIL")}
    if as_json:
        agents = {"agents": rows} if live else {}
        print_json({"ok": not counts["FAIL"], "counts": counts, "findings": findings, **agents})
    else:
        sys.stdout.writelines(f"{line}\n" for line in report_lines(findings, every=every))
        sys.stdout.writelines(f"{line}\n" for line in agent_tables(rows, terminal_columns()))
    if counts["FAIL"]:
        raise typer.Exit(1)


def report_lines(findings: Sequence[Finding], *, every: bool) -> Iterator[str]:
    """The findings by area; passed checks in one line unless ``every``; the totals last."""
    shown = [each for each in findings if every or each.level != "ok"]
    for area in dict.fromkeys(each.area for each in shown):
        yield painted(area.capitalize(), "bold")
        yield from (_finding_line(each) for each in shown if each.area == area)
    fine = [each for each in findings if each.level == "ok"]
    if fine and not every:
        areas = ", ".join(dict.fromkeys(each.area for each in fine))
        yield f"{painted('ok', 'green')}    {_plural(len(fine), 'check')}: {areas} (`--all` shows each)"
    warned, failed = (sum(each.level == level for each in findings) for level in ("warn", "FAIL"))
    yield f"{len(fine)} ok, {_plural(warned, 'warning')}, {failed} failed"


def agent_tables(rows: Sequence[AgentResult], width: int) -> Iterator[str]:
    """What agents can do: a line for each capability and a column for each agent, in as many tables as ``width`` needs;
    then what is missing, with its fix."""
    from codebutler.protocol.capabilities import CAPABILITIES, cells_of

    label = max(map(len, CAPABILITIES)) + 2
    column = max([len(row.agent) for row in rows] + [5]) + 2
    together = max(1, (width - label) // column)
    for at in range(0, len(rows), together):
        part = rows[at : at + together]
        yield ""
        names = "".join(f"{printable(row.agent):<{column}}" for row in part)
        yield painted(f"{'Agents':<{label}}{names}".rstrip(), "bold")
        for capability in CAPABILITIES:
            signs = [SIGNS[cells_of(row)[capability].state] for row in part]
            cells = "".join(painted(sign, style) + " " * (column - len(sign)) for sign, style in signs)
            yield f"{capability:<{label}}{cells}".rstrip()
    if rows:
        yield ""
        yield from wrap(LEGEND, width)
    for row in rows:
        yield from _agent_details(row, width)


def _agent_details(row: AgentResult, width: int) -> Iterator[str]:
    version = f" {row.version}" if row.version else ""
    tested = f" (requires {row.floor} or newer, tested up to {row.tested})" if row.floor else ""
    repos = f", as in {', '.join(row.repos)}" if any(row.repos) else ""
    cost = f", ${row.cost_usd:.2f}" if row.cost_usd else ""
    yield ""
    yield from wrap(printable(f"{row.agent}{version}{tested}{repos}: {row.turns} runs{cost}"), width)
    for cell in row.cells:
        if cell.state != "yes":
            first, *rest = wrap(_cell_text(cell), max(width - 4, 20))
            yield f"  {first}"
            yield from (f"    {line}" for line in rest)


def _cell_text(cell: Cell) -> str:
    state = {"no": "does not work", "not supported": "not supported", "not tried": "not tried"}[cell.state]
    fix = f" {cell.fix}" if cell.fix else ""
    return printable(f"{cell.capability}: {state}: {cell.text}.{fix}".replace("..", "."))


def _finding_line(finding: Finding) -> str:
    level = painted(f"{finding.level:<4}", STYLES[finding.level])
    return f"  {level}  {printable(finding.subject)}: {printable(finding.text)}"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def _examine(*, live: bool, shown: bool) -> tuple[list[Finding], list[AgentResult]]:
    from codebutler.domain.clock import SystemClock
    from codebutler.operations.doctor import examine

    findings, rows = [], []
    _progress("Checking …", shown=shown)
    async for line in examine(home(), environment(), SystemClock(), live=live):
        if line.finding is not None:
            findings.append(line.finding)
            done = f"{_plural(len(findings), 'check')} done, last: {line.finding.area} …"
            _progress(done, shown=shown)
        rows += [line.row] if line.row is not None else []
        if line.step and shown:
            # On lines of their own: they cost money and take time.
            _progress("", shown=shown)
            notice(line.step)
    async for finding in _cluster_findings():
        findings.append(finding)
        _progress(f"{_plural(len(findings), 'check')} done, last: {finding.area} …", shown=shown)
    _progress("", shown=shown)
    return findings, rows


async def _cluster_findings() -> AsyncIterator[Finding]:
    if not (home().root / MEMBERSHIP_FILE).exists():
        return
    try:
        need_cluster()
    except ConfigError as error:
        yield fail("cluster", MEMBERSHIP_FILE, str(error))
        return
    from codebutler.cluster.health import examine_cluster
    from codebutler.domain.clock import SystemClock

    async for finding in examine_cluster(home(), SystemClock()):
        yield finding


def _progress(text: str, *, shown: bool) -> None:
    """A line that the next one overwrites, to show progress."""
    if shown and is_interactive():
        sys.stderr.write(f"{CLEAR}{printable(text)}")
        sys.stderr.flush()


def write_bundle(findings: Sequence[Finding], output: Path | None, *, yes: bool) -> None:
    """Collect, show, ask, write. Raises CodeButlerError if the archive cannot be written; exit code 1 after a no, 2
    if nobody is there to be asked."""
    import pydoc

    from codebutler.operations.bundle import collect, write_archive

    path = output or Path(BUNDLE_NAME)
    files = collect(home(), environment(), findings)
    text = bundle_text(files)
    if yes or not is_interactive():
        sys.stdout.write(text)
    else:
        pydoc.pager(text)
    for name, content in files.items():
        notice(f"  {name}: {len(content.splitlines())} lines, {len(content.encode())} bytes")
    if not yes:
        _confirm()
    write_archive(path, files)
    print_line(f"Wrote {path}. Review it before you attach it: everybody can read it in the report.")


def bundle_text(files: Mapping[str, str]) -> str:
    """Every file under its name. Pure."""
    return "\n".join(f"===== {name}\n{printable_lines(content)}" for name, content in files.items())


def _confirm() -> None:
    if not is_interactive():
        notice("Nothing was written, because there is no terminal to confirm at. Add --yes to write it.")
        raise typer.Exit(EXIT_USAGE)
    try:
        answer = ask(QUESTION, "n")
    except EOFError:
        answer = "n"
    if answer.lower() not in ("y", "yes"):
        notice("Nothing was written.")
        raise typer.Exit(1)


@app.callback()
def _group() -> None:
    """Manage the sandbox."""


@app.command()
def build(
    base: Annotated[str, typer.Option(help="The base image; pulled if missing.")] = BASE,
    root: Annotated[
        Path | None, typer.Option(help="Build on this root file system (tar) instead; needs no registry.")
    ] = None,
    package: Annotated[list[str] | None, typer.Option(help="An extra package; may be repeated.")] = None,
    host: Annotated[
        str, typer.Option(help="The docker daemon; defaults to DOCKER_HOST, then to docker's own.")
    ] = "",
) -> None:
    """Build the image codebutler-runner, in which agents work if `sandbox.mode` is `docker`."""
    program = shutil.which("docker", path="/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin")
    if program is None:
        raise CodeButlerError(
            "docker is not installed: install it (Debian, Ubuntu: apt-get install docker.io)"
        )
    client = [program, *(("--host", host) if host else ())]
    if root is not None:
        if not root.is_file():
            raise CodeButlerError(
                f"{root} is not a file: make it with debootstrap and tar, or leave --root out"
            )
        base = f"{RUNNER}-root"
        print_line(f"Importing {root} …")
        _run_docker([*client, "import", str(root), base])
    print_line(f"Building {RUNNER} on {base} …")
    arguments = {"BASE": base, "PACKAGES": " ".join(package or ()), "TOOLS": TOOLS}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    _run_docker([*client, "build", "--tag", RUNNER, *words, "-"], DOCKERFILE)
    print_line(f'Built {RUNNER}: set "sandbox": {{"mode": "docker"}} in the configuration to use it.')


def _run_docker(command: list[str], text: str = "") -> None:
    completed = subprocess.run(
        command, input=text, capture_output=True, text=True, env=dict(os.environ), check=False
    )
    if completed.returncode != 0:
        lines = [line.strip() for line in (completed.stderr or completed.stdout).splitlines() if line.strip()]
        error_line = next(
            (line for line in reversed(lines) if "returned a non-zero code" not in line), "no error message"
        )
        raise CodeButlerError(
            f"docker {command[-1] if command[-1] != '-' else 'build'} failed: {error_line[:300]}"
        )
