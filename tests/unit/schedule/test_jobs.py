"""What a jobs file says, and how it is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from codebutler.domain.errors import ConfigError
from codebutler.schedule.jobs import Job, JobPlace, parse_file, place_at, place_in
from codebutler.schedule.watch import concerns

HERE = JobPlace("shop", "C1", "shop-dev")
THERE = JobPlace("blog", "C2")


def jobs(text: str) -> tuple[Job, ...]:
    return parse_file(text.encode(), "jobs.yaml", place_at(HERE)).jobs


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        jobs(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_command_and_a_prompt() -> None:
    nightly, review = jobs(
        """
jobs:
  - name: nightly
    cron: "0 3 * * *"
    command: make test
    cwd: sub dir
    label: Nightly tests
    timezone: Europe/Berlin
    missed: skip
  - {name: review, cron: "@weekly", prompt: look at the open branches, agent: claude, channel: "#shop-dev"}
"""
    )
    assert nightly.text == "run: cd 'sub dir' && make test"
    assert (nightly.label, nightly.missed, nightly.channel, nightly.repo) == (
        "Nightly tests",
        "skip",
        "C1",
        "shop",
    )
    assert review.text == "claude: look at the open branches"
    assert (review.label, review.missed, review.catch_up_s) == ("review", "once", 86400)


@pytest.mark.parametrize("watch", ["'src/*.py'", "['src/*.py']"])
def test_one_pattern_needs_no_list(watch: str) -> None:
    (job,) = jobs(f"jobs: [{{name: a, watch: {watch}, command: make}}]")
    assert job.watch == ("src/*.py",)


@pytest.mark.parametrize("text", ["", "jobs: []", "# nothing yet\n"])
def test_an_empty_file_has_no_jobs(text: str) -> None:
    assert jobs(text) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs: [{name: a}]", "a command or a prompt"),
        ("jobs: [{name: a, command: x}]", "a cron line or files to watch"),
        ("jobs: [{name: a, command: x, cron: '@daily', watch: ['*.py']}]", "a cron line or files to watch"),
        ("hooks: [{name: a, secretEnv: S, prompt: x}]", "the home's jobs.yaml only"),
        ("jobs: [{name: a, cron: '@daily'}]", "a command or a prompt"),
        ("jobs: [{name: a, cron: '@daily', command: x, prompt: y}]", "a command or a prompt"),
        ("jobs: [{name: a, cron: '@daily', command: x, agent: claude}]", "without an agent"),
        ("jobs: [{name: a, cron: often, command: x}]", "is not a cron line"),
        ("jobs: [{name: a, cron: '@daily', command: x, timezone: Mars}]", "unknown time zone"),
        ("jobs: [{name: a, cron: '@daily', command: x, channel: C2}]", "no served repository"),
        ("jobs: [{name: a, cron: '@daily', command: x, when: now}]", "when"),
        ("jobs: [{name: 'a b', cron: '@daily', command: x}]", "letters, digits"),
        (
            "jobs: [{name: a, cron: '@daily', command: x}, {name: a, cron: '@daily', command: y}]",
            "two entries",
        ),
        ("jobs: [{name: a, cron: '@daily', command: x, catchUpHours: -1}]", "catchUpHours"),
        ("jobs: [{name: a, cron: '@daily', command: x, missed: all}]", "missed"),
        ("jobs: {", "is not valid YAML"),
        (
            "jobs:\n  - name: a\n    cron: */5 * * * *\n    command: x",
            "a value that begins with * needs quotes",
        ),
        ("jobs:\n  - name: a\n    cron: '@daily'\n    command: echo a: b", "a colon needs quotes"),
        ("just words", "begin with `jobs:`"),
        ("- name: a\n  command: x", "begin with `jobs:`"),
        ("jobs: !!python/object:os.system [x]", "is not valid YAML"),
        ("\x00", "is not valid YAML"),
        ("jobs: " + "[" * 60_000, "nested more than 50 levels deep"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str) -> None:
    assert said in refusal(text)
    assert refusal(text).startswith("jobs.yaml")


def test_the_homes_file_names_the_repository() -> None:
    named, placed = (
        b"{name: a, cron: '@daily', command: x, repo: blog}",
        b"{name: b, cron: '@daily', prompt: y, channel: C1}",
    )
    file = b"jobs: [%b, %b]" % (named, placed)
    assert [job.repo for job in parse_file(file, "jobs.yaml", place_in([HERE, THERE])).jobs] == [
        "blog",
        "shop",
    ]
    with pytest.raises(ConfigError, match="no served repository"):
        parse_file(b"jobs: [{name: a, cron: '@daily', command: x}]", "jobs.yaml", place_in([HERE, THERE]))


def test_the_digest_tells_changes() -> None:
    one, two = (jobs(f"jobs: [{{name: a, cron: '@daily', command: {x}}}]")[0] for x in "xy")
    assert one.digest != two.digest


def test_a_job_may_wait_for_files() -> None:
    (job,) = jobs("jobs: [{name: a, watch: ['src/*.py', Makefile], command: make}]")
    assert (job.when, job.next(datetime(2026, 1, 1, tzinfo=UTC))) == ("watch src/*.py Makefile", None)
    assert concerns(job.watch, ["src/deep/x.py"])
    assert concerns(job.watch, ["README.md", "Makefile"])
    assert not concerns(job.watch, ["README.md", "src/x.js"])
