"""The version as files keep it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from codebutler.domain.version import VERSION, as_number, as_text

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_it_is_the_one_of_the_project() -> None:
    assert tomllib.loads(PROJECT.read_text())["project"]["version"] == VERSION


@pytest.mark.parametrize("version", ["0.1.0", "1.2.3", "12.0.345", VERSION])
def test_a_release_survives_as_a_number(version: str) -> None:
    assert as_text(as_number(version)) == version


def test_numbers_sort_as_releases_do_and_fit_in_the_files_header() -> None:
    releases = ["", "0.0.1", "0.1.0", "0.1.1", "0.10.0", "1.0.0", "999.999.999"]
    numbers = [as_number(each) for each in releases]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 2**31


@pytest.mark.parametrize(("version", "release"), [("0.2.0.dev3", "0.2.0"), ("1.2", "1.2.0"), ("x", "")])
def test_what_follows_the_three_numbers_is_left_out(version: str, release: str) -> None:
    assert as_text(as_number(version)) == release


@pytest.mark.parametrize("number", [0, -5])
def test_a_file_without_one_has_none(number: int) -> None:
    assert as_text(number) == ""
