"""The supervisor as installed on this machine. ``codebutler install`` and ``uninstall``: a user service. ``upgrade``:
what a newer version would change here, and how to get it. ``restart``: start that one in place; unfinished work
resumes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codebutler.cli.context import environment, home, request_reply, send_request
from codebutler.cli.output import notice, print_json, print_line, warn
from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError, ConfigError, LockHeldError
from codebutler.protocol.control import RestartRequest, StatusReply, StatusRequest

if TYPE_CHECKING:
    from codebutler.platform.system import ServiceManager, ServiceReport, ServiceSpec

START_POLL_S = 0.25
# Longer than a start takes; one that waits for its chat continues by itself.
START_PATIENCE_S = 20.0
# Variables that agents use and a service does not have.
AGENT_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "HTTPS_PROXY")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The locale and the certificates; no token, no key: a unit file is no place for secrets.
PASSED_VARIABLES = ("LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")
POLL_S = 0.3
# Longer than running work has to finish, and a start takes.
PATIENCE_S = 120.0


def install(
    show: Annotated[bool, typer.Option("--print", help="Only print the file that would be written.")] = False,
) -> None:
    """Run the supervisor as a user service: started when you log in, restarted when it fails."""
    home_dir = home().ensure()
    manager, text = manager_of(home_dir, environment())
    if show:
        for line in text.rstrip("\n").split("\n"):
            print_line(line)
        return
    check_ready(home_dir, environment())
    check_not_running(home_dir, manager)
    manager.install()
    print_line(f"Wrote {manager.file}.")
    for name in AGENT_KEYS:
        if environment().get(name):
            warn(f"the service does not see {name} from this shell: put it in {home_dir.env_file}")
    report = wait_for_start(manager.report, time.sleep, time.monotonic)
    if report.state == "failed":
        raise CodeButlerError(f"the service did not start ({report.text}): see `codebutler logs`")
    print_line(
        "The service is running."
        if report.state == "running"
        else "The service is starting: see `codebutler status`."
    )
    if advice := manager.advice():
        print_line(advice)


def uninstall() -> None:
    """Stop and remove the service; the configuration, repositories and their data stay."""
    manager, _text = manager_of(home(), environment())
    if manager.uninstall():
        print_line(f"Stopped the service and removed {manager.file}. Your configuration and data are kept.")
    else:
        print_line("There is no service to remove.")


def manager_of(home_dir: Home, env: Mapping[str, str]) -> tuple[ServiceManager, str]:
    """This system's service manager, and the file that describes our service to it.

    Raises CodeButlerError if there is none that we support.
    """
    from codebutler.platform.system import run_program, this_system

    service = service_for(
        home_dir, env, setuid_sandbox=_is_setuid(shutil.which("bwrap", path=env.get("PATH")))
    )
    return this_system().manager(service, env, run_program)


def service_for(home: Home, env: Mapping[str, str], *, setuid_sandbox: bool = False) -> ServiceSpec:
    """The service of ``home`` as the user with ``env`` would run it by hand. ``setuid_sandbox``: bubblewrap
    needs its setuid bit here, which a service without new privileges would lose."""
    from codebutler.platform.system import ServiceSpec

    default_home = Home.from_env({"HOME": env.get("HOME", "")})
    name = "codebutler"
    environment = {"PATH": env.get("PATH") or DEFAULT_PATH}
    environment |= {key: env[key] for key in PASSED_VARIABLES if env.get(key)}
    if home.root != default_home.root:
        name += f"-{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:8]}"
        environment["CODEBUTLER_HOME"] = str(home.root)
    return ServiceSpec(
        name=name,
        # -I: neither the working directory nor PYTHON* variables decide what code runs.
        argv=(sys.executable, "-I", "-X", "utf8", "-m", "codebutler", "supervise"),
        home=home.root,
        environment=environment,
        locked_privileges=not setuid_sandbox,
    )


def check_ready(home_dir: Home, env: Mapping[str, str]) -> None:
    """Checks that it would start without this shell's variables. Raises ConfigError with what is missing."""
    from codebutler.config.channels import served_chats
    from codebutler.config.chats import SECTIONS
    from codebutler.config.load import token_fault, tokens_of
    from codebutler.config.resolve import VARIABLES, resolve_global

    current, saved = resolve_global(home_dir, env).config, tokens_of(resolve_global(home_dir, {}).config)
    names = {variable.key: name for name, variable in VARIABLES.items()}
    chats = served_chats(current)
    used = {f"{each.key}.{token.key}" for each in SECTIONS if each.title in chats for token in each.tokens}
    for key, found in tokens_of(current).items():
        if key not in used or not token_fault(key, saved[key]):
            continue
        name = names[key]
        if found and not token_fault(key, found):
            raise ConfigError(
                f"{name} is set in this shell only, where a service does not see it: "
                f"put it in {home_dir.env_file} or run `codebutler setup`"
            )
        raise ConfigError(f"there is no usable {name} yet: run `codebutler setup`")


def check_not_running(home_dir: Home, manager: ServiceManager) -> None:
    """Raises LockHeldError while another supervisor runs here; our own service is replaced."""
    from codebutler.supervisor.supervisor import SupervisorLock

    try:
        with SupervisorLock(home_dir.lock):
            return
    except LockHeldError as error:
        if manager.report().pid != error.holder_pid:
            raise


def wait_for_start(
    report: Callable[[], ServiceReport], sleep: Callable[[float], None], monotonic: Callable[[], float]
) -> ServiceReport:
    """The first final report, or the last one before the timeout."""
    until_s = monotonic() + START_PATIENCE_S
    while (latest := report()).state == "starting" and monotonic() < until_s:
        sleep(START_POLL_S)
    return latest


def _is_setuid(program: str | None) -> bool:
    return program is not None and bool(Path(program).stat().st_mode & stat.S_ISUID) and os.getuid() != 0


STEPS = (
    "Upgrade with the tool that installed it, such as `pipx upgrade codebutler` or `uv tool upgrade codebutler`.",
    "Then `codebutler upgrade --check` says what the new version will migrate,",
    "and `codebutler restart` starts it; running work resumes.",
)


def upgrade(
    check: Annotated[
        bool, typer.Option("--check", help="Report what an upgrade would change, without changing anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the check as one JSON object.")] = False,
) -> None:
    """Show how to upgrade or, with --check, what an upgrade would change; exit code 1 if something must be fixed."""
    if not check:
        if as_json:
            raise typer.BadParameter("--json requires --check")
        for line in STEPS:
            print_line(line)
        return
    from msgspec.structs import asdict

    from codebutler.cli.doctor import report_lines
    from codebutler.operations.upgrade import examine
    from codebutler.platform.system import run_program

    found = asyncio.run(examine(home(), environment(), run_program))
    if as_json:
        print_json({"ready": found.ready, **asdict(found)})
    else:
        sys.stdout.writelines(f"{line}\n" for line in report_lines(found.findings, every=True))
    if not found.ready:
        raise typer.Exit(1)


def restart() -> None:
    """Restart the running supervisor with the installed version; running work resumes."""
    began_s = time.monotonic()
    notice(send_request(RestartRequest()).text)
    while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
        time.sleep(POLL_S)
        found = _supervisor_status()
        if found and found["uptime_s"] < waited_s:
            print_line(f"Restarted: pid {found['pid']}, version {found['version']}.")
            return
    raise CodeButlerError("the supervisor has not come back: see `codebutler logs`")


def _supervisor_status() -> dict[str, Any]:
    try:
        status: dict[str, Any] = request_reply(StatusRequest(), StatusReply).status["supervisor"]
    except CodeButlerError:
        return {}  # between the two
    return status
