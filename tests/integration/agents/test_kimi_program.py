"""Which Kimi is installed: the living one, its two dead namesakes, or none; and which Node runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.agent_sessions import kimi_sessions
from codebutler.config.schema import CommandRule, Config, KimiSection, RepoSettings
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.acp.kimi import Kimi, judge, judge_node
from codebutler_worker.agents.rollcall import survey
from codebutler_worker.agents.survey import Survey, executable, interpreter, root_of
from tests.ordinary import give_away
from tests.programs import KIMI_VERSION, path_with_node, require

STUB = "kimi-cli is no longer maintained. Please use the new Kimi Code CLI. Install: curl …"


def script(directory: Path, text: str, name: str = "kimi") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    found = directory / name
    found.write_text(text)
    found.chmod(0o755)
    return found


def says(directory: Path, text: str) -> str:
    """A `kimi` that says this whatever it is asked; returns the PATH on which it is found."""
    script(directory, f"#!/bin/sh\necho '{text}'\n")
    return f"{directory}:/usr/bin:/bin"


async def of(tmp_path: Path, path: str, config: Config | None = None, prefix: str = "kimi") -> Survey:
    repo = tmp_path / "repo"
    repo.mkdir(exist_ok=True)
    give_away(repo)
    config = config or Config(kimi=KimiSection(api_key="k"))
    settings = RepoSettings(
        name="r", path=str(repo), channel_id="C1", config=config, agent_env={"PATH": path}
    )
    return next(one for one in await survey(settings, tmp_path / "home") if one.prefix == prefix)


async def test_the_real_one_is_ready_with_a_key_or_a_login(tmp_path: Path) -> None:
    require("kimi")
    found = await of(tmp_path, path_with_node())
    assert (found.ready, found.version, found.note) == (True, KIMI_VERSION, "")
    nobody = await of(tmp_path, path_with_node(), Config())
    assert (nobody.ready, "`kimi login`" in nobody.note) == (False, True)
    login = tmp_path / "home" / ".kimi-code" / "credentials" / "kimi-code.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    assert (await of(tmp_path, path_with_node(), Config())).ready


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (STUB, "retired kimi-cli"),
        (f"kimi, version 1.52.0\n{STUB}", "retired kimi-cli"),
        ("kimi, version 1.50.0", "older kimi-cli 1.50.0"),
        ("0.43.1", "Kimi Code 0.43.1 is too old"),
        ("hello", "prints no version"),
    ],
)
async def test_what_is_not_kimi_code_is_named(tmp_path: Path, said: str, told: str) -> None:
    found = await of(tmp_path, says(tmp_path / "bin", said))
    assert not found.ready
    assert told in found.note
    assert "npm install" in found.note
    assert "\n" not in found.note


async def test_a_missing_or_planted_program_is_not_run(tmp_path: Path) -> None:
    missing = await of(tmp_path, "/nowhere")
    assert (missing.ready, "not installed" in missing.note) == (False, True)
    planted = says(tmp_path / "repo" / "bin", KIMI_VERSION)
    assert "not installed" in (await of(tmp_path, planted)).note
    named = Config(kimi=KimiSection(binary=str(tmp_path / "repo" / "bin" / "kimi")))
    assert "is in the repository" in (await of(tmp_path, "/usr/bin", named)).note


async def test_a_node_that_is_too_old_is_named(tmp_path: Path) -> None:
    script(tmp_path / "bin", "#!/bin/sh\necho v20.20.2\n", "node")
    script(tmp_path / "bin", "#!/usr/bin/env node\n")
    found = await of(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin")
    assert (found.ready, "needs Node 22.19.0" in found.note, "20.20.2" in found.note) == (False, True, True)


async def test_a_script_without_its_interpreter_says_which(tmp_path: Path) -> None:
    script(tmp_path / "bin", "#!/usr/bin/env nodule\n")
    found = await of(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin")
    assert found.note == "kimi needs nodule, which is not on the supervisor's PATH"


async def test_a_rule_may_name_another_program(tmp_path: Path) -> None:
    binary = script(tmp_path / "elsewhere", f"#!/bin/sh\necho {KIMI_VERSION}\n", "my-kimi")
    rule = CommandRule(prefix="kimi", binary=str(binary), mode="acp")
    config = Config(kimi=KimiSection(api_key="k"), commands=(rule,))
    assert (await of(tmp_path, "/usr/bin", config)).ready
    other = CommandRule(prefix="kimi", binary="nowhere-to-be-found", args=("acp",), mode="acp")
    assert not (await of(tmp_path, path_with_node(), Config(commands=(other,)))).ready


async def test_agents_of_the_configuration_are_surveyed_too(tmp_path: Path) -> None:
    there = CommandRule(prefix="gem", binary=str(script(tmp_path / "bin", "", "gem")), mode="acp")
    gone = CommandRule(prefix="gone", binary="nowhere-to-be-found", mode="acp")
    config = Config(commands=(there, gone))
    assert (await of(tmp_path, "/usr/bin", config, "gem")).ready
    missing = await of(tmp_path, "/usr/bin", config, "gone")
    assert (missing.ready, "nowhere-to-be-found is not installed" in missing.note) == (False, True)


def test_versions_are_judged() -> None:
    assert judge(KIMI_VERSION) == ""
    assert "newer than" in judge("3.0.0")
    judge_node("v22.19.0")
    with pytest.raises(AgentUnavailableError):
        judge_node("v22.18.9")


def test_a_script_is_run_by_what_is_outside_the_repository(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    outside = script(tmp_path / "bin", "", "node")
    script(repo / "bin", "", "node")
    binary = script(
        tmp_path / "lib" / "node_modules" / "x" / "dist", "#!/usr/bin/env -S node --flag\n", "x.mjs"
    )
    found = executable(binary, f"{repo}/bin:bin:{tmp_path}/bin", repo, tmp_path / "home")
    assert found.argv == (str(outside), "--flag", str(binary))
    assert found.readable == (tmp_path / "lib" / "node_modules", outside)


def test_a_program_is_read_from_where_all_of_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    assert root_of(venv / "bin" / "agent", home) == venv
    assert root_of(home / "agent", home) == home / "agent"
    assert interpreter("#!/usr/bin/python3 -I") == ["/usr/bin/python3", "-I"]
    assert interpreter("\x7fELF") == []


def test_sessions_are_kept_by_directory(tmp_path: Path) -> None:
    """As Kimi Code 2.1.0 names it: else the sessions of other repositories would be seen."""
    assert kimi_sessions(Path("/c"), Path("/tmp/g-lab/r")).name == "wd_r_3e25cd313036"
    assert kimi_sessions(Path("/c"), Path("/nowhere/Mein Repo!")).name.startswith("wd_mein-repo_")
    assert kimi_sessions(Path("/c"), Path("/")).name.startswith("wd_workspace_")


def test_a_key_stays_out_of_what_is_asked_for_its_version(tmp_path: Path) -> None:
    kimi = Kimi(KimiSection(api_key="sk-secret"), tmp_path, {"PATH": "/usr/bin"})
    assert "sk-secret" not in str(kimi.environment())
