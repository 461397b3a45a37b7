"""Fixtures every suite may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.dockerd import shared_dockerd
from tests.ordinary import gits_environment, open_the_way, sample_repository
from tests.programs import TOOLS
from tests.rooted import may_need_root

# How long an example takes depends on who else uses the machine; time is measured in bench/, not here.
hypothesis.settings.register_profile("suite", deadline=None, print_blob=True)
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-passages",
        action="store_true",
        help="kill at every passage of every point, not only at the first and the last (make soak)",
    )


# Files that take minutes begin first: else one of them runs alone at the end.
LONGEST = ("test_kill_points.py", "test_soak_short.py", "test_page_views.py", "test_page_desk.py")


@pytest.hookimpl(tryfirst=True)  # before -m chooses by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)
    rooted: set[Path] = set()
    for item in items:
        if "docker_host" in getattr(item, "fixturenames", ()):
            item.add_marker("root")
        if item.get_closest_marker("root"):
            rooted.add(item.path)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root: `make test SELECT=root`"))
    if unseen := [str(file) for file in rooted if not may_need_root(file)]:
        raise pytest.UsageError(f"tests/rooted.py does not see that these need root: {unseen}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many attacks were tried, and how many of them stopped: those of a test that failed count as not."""
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.getreports(kind)}
    told = [
        (int(str(value)), report.nodeid not in failed)
        for report in terminalreporter.getreports("")
        for name, value in getattr(report, "user_properties", ())
        if name == "attacks" and report.when == "teardown"
    ]
    if told:
        stopped = sum(count for count, held in told if held)
        terminalreporter.write_line(f"attacks: {sum(count for count, _ in told)} tried, {stopped} stopped")


@pytest.fixture(scope="session", autouse=True)
def _home_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Worker processes inherit it from the one fork server of the run: nothing reaches the user's own home."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CODEBUTLER_HOME", str(tmp_path_factory.mktemp("home")))
        for program in (TOOLS, Path(sys.prefix), Path(sys.base_prefix)):
            open_the_way(program)
        for name, value in gits_environment(tmp_path_factory.mktemp("git")).items():
            environment.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real docker daemon of the tests' own, in which the runner's image is built."""
    base = tmp_path_factory.getbasetemp()
    # The processes of one run have their directories side by side.
    with shared_dockerd((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dockerd") as host:
        yield host


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A directory that agents get to, who are an ordinary user also where root runs the tests."""
    open_the_way(tmp_path)
    return tmp_path


@pytest.fixture
def git_repo(tmp_path: Path) -> Path:
    """A fresh repository with one commit: README.md and src/app.py."""
    return sample_repository(tmp_path)
