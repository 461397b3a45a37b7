"""What a public forge is told: workflows, forms, the versions developers get, the notes of a release."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.docs.pages import ROOT
from tests.wheel import notes

FORGE = ROOT / ".github"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCHEMAS = {
    "workflows/ci.yml": "github-workflows",
    "workflows/release.yml": "github-workflows",
    "dependabot.yml": "dependabot",
    "ISSUE_TEMPLATE/bug.yml": "github-issue-forms",
    "ISSUE_TEMPLATE/wish.yml": "github-issue-forms",
    "ISSUE_TEMPLATE/config.yml": "github-issue-config",
}


def test_each_file_is_checked() -> None:
    assert {str(path.relative_to(FORGE)) for path in FORGE.rglob("*.yml")} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_has_the_forges_own_form(name: str) -> None:
    command = [
        Path(sys.executable).with_name("check-jsonschema"),
        "--builtin-schema",
        f"vendor.{SCHEMAS[name]}",
        FORGE / name,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_workflows_run_is_there() -> None:
    text = "".join(path.read_text() for path in (FORGE / "workflows").iterdir())
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in re.findall(r"\bmake ([a-z- ]+)", text):
        assert set(line.split()) <= targets
    for path in re.findall(r"\b(?:tests|deploy)/[\w./]*\w", text):
        assert (ROOT / path).exists(), path


def test_the_workflows_try_the_versions_we_name() -> None:
    jobs = yaml.safe_load((FORGE / "workflows" / "ci.yml").read_text())["jobs"]
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert set(jobs["linux"]["strategy"]["matrix"]["python"]) == named
    assert min(named, key=lambda each: int(each[2:])) == PROJECT["requires-python"].removeprefix(">=")


def test_what_developers_get_is_what_the_project_takes() -> None:
    locked: dict[str, list[str]] = {}
    for line in (ROOT / "tests" / "requirements.lock").read_text().splitlines():
        requirement = Requirement(line)
        [pin] = requirement.specifier
        locked.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        wanted = Requirement(text)
        versions = locked.get(canonicalize_name(wanted.name), [])
        assert versions, f"{wanted.name} is not locked: make lock"
        assert all(wanted.specifier.contains(version) for version in versions), f"{text}: make lock"


CHANGELOG = "# Changelog\n\n## Unreleased\n\n- c\n\n## 1.10.0 (2026-12-01)\n\n- b\n\n## 1.1.0\n\n- a\n"


@pytest.mark.parametrize(("version", "expected"), [("1.10.0", "- b"), ("1.1.0", "- a"), ("1.0.0", "")])
def test_the_notes_are_the_section_of_that_version(version: str, expected: str) -> None:
    assert notes.section(CHANGELOG, version) == expected


@pytest.mark.parametrize(
    ("tag", "changelog", "code", "said"),
    [
        ("v1.1.0", CHANGELOG, 0, "- a"),
        ("v1.2.0", CHANGELOG, 1, "pyproject.toml says 1.1.0"),
        ("v1.1.0", "## Unreleased\n", 1, "no notes under '## 1.1.0'"),
    ],
)
def test_a_tag_that_does_not_agree_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str, changelog: str, code: int, said: str
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    assert notes.main(tag, tmp_path) == code
    assert said in "".join(capsys.readouterr())
