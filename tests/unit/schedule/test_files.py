"""What the scheduler believes of files that people and editors write while it looks."""

from __future__ import annotations

from pathlib import Path

from codebutler.platform.files import PrivateDir
from codebutler.schedule.files import JobFiles, JobSource, News, read_in
from codebutler.schedule.jobs import JobPlace, place_at

ONE = "jobs: [{name: look, cron: '@yearly', prompt: list the files}]"
SHOP = JobPlace("shop", "C1")


def files(place: Path) -> JobFiles:
    return JobFiles(
        lambda: [
            JobSource(
                "shop", lambda: read_in(lambda: PrivateDir(place), lambda _: ""), place_at(SHOP), (SHOP,)
            )
        ]
    )


def test_a_change_counts_once_it_has_been_read_twice(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(ONE)
    looks = files(tmp_path)
    assert list(looks.look().jobs) == ["shop/look"]
    file.write_text("jobs: [] # all gone")
    found = looks.look()
    assert (list(found.jobs), found.news, found.unsettled) == (["shop/look"], (), True)
    found = looks.look()
    assert (list(found.jobs), found.unsettled) == ([], False)
    assert found.news == (News("shop", "C1", "jobs reloaded: removed look"),)


def test_a_file_that_is_being_written_takes_nothing_away(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(ONE)
    looks = files(tmp_path)
    looks.look()
    file.write_text("")
    assert looks.look().unsettled
    file.write_text(ONE.replace("look", "other"))
    assert list(looks.look().jobs) == ["shop/look"]
    found = looks.look()
    assert list(found.jobs) == ["shop/other"]
    assert [news.line for news in found.news] == ["jobs reloaded: added other; removed look"]


def test_the_last_jobs_removal_and_what_is_wrong_without_any_job_are_told_in_the_channel(
    tmp_path: Path,
) -> None:
    looks = files(tmp_path)
    assert looks.look().news == ()
    (tmp_path / "jobs.yaml").write_text("jobs: {")
    looks.look()
    (news,) = looks.look().news
    assert news.channel == "C1"
    assert "the previous jobs stay in force" in news.line
    assert news.trouble
    assert looks.look().news == ()


def test_a_file_that_is_wrong_at_the_start_has_jobs_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs: {")
    looks = files(tmp_path)
    found = looks.look()
    assert not found.jobs
    assert found.unread == {"shop"}
    assert "none of its jobs run" in found.news[0].line
    (tmp_path / "jobs.yaml").write_text(ONE)
    looks.look()
    found = looks.look()
    assert (list(found.jobs), found.unread) == (["shop/look"], frozenset())
    (tmp_path / "jobs.yaml").write_text("jobs: {")
    looks.look()
    assert looks.look().unread == frozenset()


def test_the_jobs_of_a_repository_that_cannot_be_served_are_not_gone(tmp_path: Path) -> None:
    looks = JobFiles(list, absent=lambda: ["shop"])
    assert looks.look().unread == {"shop"}
