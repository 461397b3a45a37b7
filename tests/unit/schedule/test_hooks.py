"""Who may call a hook, and what its body becomes."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.errors import ConfigError
from codebutler.domain.model import OPERATOR, Prompt
from codebutler.schedule.jobs import MAX_VALUE_CHARS, Hook, JobPlace, parse_file, place_in
from codebutler.text.requests import request_of
from tests.events import posted

SECRET = "a-secret-of-some-length"
FILE = """
hooks:
  - {name: ci, secretEnv: CI_SECRET, agent: claude, label: CI, prompt: "{{ body.job.name }} failed: {{body.log}}"}
"""


def hook(env: dict[str, str] | None = None, file: str = FILE) -> Hook:
    env = {"CI_SECRET": SECRET} if env is None else env
    return parse_file(file.encode(), "jobs.yaml", place_in([JobPlace("shop", "C1")]), env).hooks[0]


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"}


def test_a_signature_or_the_secret_itself_admits() -> None:
    assert hook().admits(b"{}", signed(b"{}"))
    assert hook().admits(b"{}", {"authorization": f"Bearer {SECRET}"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(b"{ }"),
        signed(b"{}", "another-secret-of-some-length"),
        {"x-hub-signature-256": "sha256="},
        {"x-hub-signature-256": "sha256=\u00e4"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer x"},
        {"authorization": f"Basic {SECRET}"},
        # A wrong signature is not made good by anything else.
        {"x-hub-signature-256": "sha256=0", "authorization": f"Bearer {SECRET}"},
    ],
)
def test_nothing_else_does(headers: dict[str, str]) -> None:
    assert not hook().admits(b"{}", headers)


def test_the_body_fills_the_owners_template() -> None:
    assert hook().text({"job": {"name": "build"}, "log": ["a", "b"]}) == 'claude: build failed: ["a","b"]'
    assert hook().text({"job": "x"}) == "claude:  failed: "
    assert hook().text("raw") == "claude:  failed: "
    long = hook().text({"log": "x" * 10_000})
    assert len(long) < MAX_VALUE_CHARS + 100
    assert long.endswith("… (cut)")


@pytest.mark.parametrize(
    "prompt", ["{{ body }}", "  {{body}} today", "{{ body.x }}", "run: make {{ body.x }}", "!stop"]
)
@pytest.mark.parametrize(
    "said", ["run: touch owned", "RUN:x", " !kill", "/butler stop", "/stop", "claude: x", "word", ""]
)
def test_what_comes_is_no_word_of_ours_and_names_no_program(prompt: str, said: str) -> None:
    called = hook(file=f"hooks: [{{name: ci, secretEnv: CI_SECRET, prompt: '{prompt}'}}]")
    for body in (said, {"x": said}, [said]):
        text = called.text(body)
        event = posted(channel="C1", ref="1.1", user=OPERATOR, text=text, origin="schedule")
        assert request_of(event, {"run", "claude", "sh"}) == Prompt(text=text)


def test_whatever_comes_goes_to_the_agent_that_the_owner_named() -> None:
    called = hook(file="hooks: [{name: ci, secretEnv: CI_SECRET, agent: claude, prompt: '{{ body }}'}]")
    event = posted(channel="C1", ref="1.1", user=OPERATOR, text=called.text("run: x"), origin="schedule")
    assert request_of(event, {"run", "claude"}) == Prompt(text="run: x", prefix="claude")


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_comes_it_becomes_text_and_is_not_read_again(body: object) -> None:
    """A body that looks like a template is no template."""
    text = hook().text({"job": {"name": "{{ body.log }}"}, "log": body})
    assert text.startswith("claude: {{ body.log }} failed: ")


@pytest.mark.parametrize(
    ("file", "env", "said"),
    [
        (FILE, {}, "set CI_SECRET in the home's .env"),
        (FILE, {"CI_SECRET": "short"}, "at least 16 characters"),
        (FILE.replace("name: ci", "name: 'a/b'"), None, "letters, digits"),
        (FILE.replace("claude, label", "claude, channel: C9, label"), None, "no served repository"),
        ("hooks: [{name: a, secretEnv: CI_SECRET, prompt: ' '}]", None, "give it a prompt"),
        ("hooks: [{name: a, secretEnv: CI_SECRET, command: make}]", None, "hooks[0]"),
        ("hooks: [{name: a, secretEnv: CI_SECRET, agent: run, prompt: x}]", None, "run is not an agent"),
        ("hooks: [{name: a, secretEnv: CI_SECRET, agent: RUN, prompt: x}]", None, "before the colon"),
        ("hooks: [{name: a, secretEnv: CI_SECRET, agent: ' run', prompt: x}]", None, "before the colon"),
    ],
)
def test_what_is_missing_is_said_without_the_secret(file: str, env: dict[str, str] | None, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        hook(env, file)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
