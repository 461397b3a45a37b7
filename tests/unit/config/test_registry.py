from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.registry import RepoEntry, add, find, name_for, parse_registry, remove, replace
from codebutler.domain.errors import ConfigError, RegistryError

ONE = RepoEntry(name="one", path="/r/one", channel_id="C001")
TWO = RepoEntry(name="two", path="/r/two", channel_id="C002")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (RepoEntry(name="other", path="/r/one"), "/r/one is already registered as one"),
        (RepoEntry(name="One", path="/r/x"), "the name one is already taken by /r/one"),
        (RepoEntry(name="x", path="/r/x", channel_id="C001"), "channel C001 already belongs to one"),
        (RepoEntry(name="all", path="/r/x"), "cannot be a repository's name"),
        (RepoEntry(name="a b", path="/r/x"), "cannot be a repository's name"),
        (RepoEntry(name="-x", path="/r/x"), "cannot be a repository's name"),
        (RepoEntry(name="", path="/r/x"), "cannot be a repository's name"),
    ],
)
def test_what_excludes_another_is_refused(entry: RepoEntry, said: str) -> None:
    with pytest.raises(RegistryError) as caught:
        add((ONE, TWO), entry)

    assert said in str(caught.value)


def test_repositories_without_a_channel_do_not_share_one() -> None:
    first, second = RepoEntry(name="a", path="/a"), RepoEntry(name="b", path="/b")

    assert add((first,), second) == (first, second)


def test_replacing_may_not_take_anothers_channel() -> None:
    with pytest.raises(RegistryError, match="C002 already belongs to two"):
        replace((ONE, TWO), RepoEntry(name="one", path="/r/one", channel_id="C002"))

    changed = RepoEntry(name="one", path="/r/one", channel_id="C001", digest="d")
    assert replace((ONE, TWO), changed) == (changed, TWO)


def test_removing_and_finding_name_those_there_are() -> None:
    assert remove((ONE, TWO), "one") == (TWO,)
    assert find((ONE, TWO), "two") is TWO
    with pytest.raises(RegistryError, match="registered: one, two"):
        find((ONE, TWO), "three")
    with pytest.raises(RegistryError, match="add-repo"):
        remove((), "one")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"repos": [{"name": "a"}]}', "repos.json: repos[0].path: is missing"),
        ('{"repos": [{"name": "a", "path": "/a", "x": 1}]}', "repos.json: repos[0].x: unknown key"),
        ('{"repos": 3}', "repos.json: repos: expected a list, got a whole number"),
        ("{", "repos.json: line 1 column 2: malformed JSON"),
        (
            '{"repos": [{"name": "a", "path": "/a", "channelID": "C1"}, '
            '{"name": "b", "path": "/b", "channelID": "C1"}]}',
            "repos.json: channel C1 already belongs to a",
        ),
    ],
)
def test_a_damaged_file_is_told_by_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_registry(text.encode(), "repos.json")

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/my repo", "my-repo"),
        ("/a/.dot", "dot"),
        ("/a/日本", "repo"),
        ("/a/Ñandú straße", "Nandu-strasse"),
        ("/a/x_1.2", "x_1.2"),
    ],
)
def test_a_name_is_made_from_the_directory(path: str, name: str) -> None:
    assert name_for(Path(path)) == name
