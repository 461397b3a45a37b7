"""Addresses and branch names that a hostile repository may name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.forge.remote import (
    ForgeError,
    Remote,
    configured_url,
    has_remote,
    is_branch_name,
    is_protected,
    validate_remote,
)
from tests.worker_kit import settings

REPO = Path("/home/ana/shop")


@pytest.mark.parametrize(
    ("url", "kind", "host", "path"),
    [
        ("https://github.com/acme/shop.git", "https", "github.com", "acme/shop"),
        ("https://ana:ghp_secret@github.com/acme/shop", "https", "github.com", "acme/shop"),
        ("https://git.example.org:8443/a/b/c.git/", "https", "git.example.org:8443", "a/b/c"),
        ("git@github.com:acme/shop.git", "ssh", "github.com", "acme/shop"),
        ("example.org:/srv/shop.git", "ssh", "example.org", "srv/shop"),
        ("ssh://git@example.org:2222/acme/shop.git", "ssh", "example.org:2222", "acme/shop"),
    ],
)
def test_addresses_that_are_pushed_to(url: str, kind: str, host: str, path: str) -> None:
    found = validate_remote(url, REPO, ())
    assert (found.kind, found.host, found.path, found.url) == (kind, host, path, url)
    assert "secret" not in found.shown


@pytest.mark.parametrize(
    "url",
    [
        "", "-oProxyCommand=touch x", "--upload-pack=touch x", "ext::sh -c touch% x", "fd::3", "foo::https://github.com/a/b",
        "http://github.com/a/b", "git://github.com/a/b", "ftp://example.org/a/b", "file:///srv/git/shop.git",
        "ssh://-oProxyCommand=touch/x", "ssh://git@-oProxyCommand=touch/x", "-oProxyCommand=touch:x", "host:-x",
        "ssh://host/-x", "https://github.com/a/../../b", "https://github.com/a b", "https://github.com/a\nb",
        "https://github.com/a/b\r", "https://git\u2024hub.com/a/b", "https://user@-x/a", "../other", "other.git",
        "/home/ana/other", "/home/ana/shop/evil.git", "/srv/gitx/shop.git", "/srv/git/../../home/ana/shop/evil.git",
        "/",
        "https://", "https:///a/b", "C:evil:x", "https://github.com/a?x", "https://github.com/a#x",
    ],
)  # fmt: skip
def test_every_other_address_is_refused(url: str) -> None:
    with pytest.raises(ForgeError) as error:
        validate_remote(url, REPO, ("/srv/git",))
    assert "\n" not in str(error.value)


def test_a_directory_is_pushed_to_where_the_configuration_names_it(tmp_path: Path) -> None:
    allowed, repo = tmp_path / "git", tmp_path / "git" / "shop"
    repo.mkdir(parents=True)
    (allowed / "shop.git").mkdir()
    (allowed / "way-in").symlink_to(repo)
    assert validate_remote(str(allowed / "shop.git"), repo, (str(allowed),)).kind == "file"
    for inside in ("shop", "shop/evil.git", "way-in/evil.git", "shop.git/../shop/evil.git"):
        with pytest.raises(ForgeError):
            validate_remote(str(allowed / inside), repo, (str(allowed),))


@pytest.mark.parametrize(
    "name", ["main", "fix-login", "codebutler/fix-3f2a", "v1.2", "größe", "a@b", "issue#5", "x=y"]
)
def test_names_of_branches(name: str) -> None:
    assert is_branch_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "-f", "--force", "--receive-pack=x", "+main", "a:main", "main:refs/heads/x", "a b", "a..b", "a~1", "a^",
        "a?",
        "a*", "[a", "a\\b", "a@{1}", "@", "HEAD", "refs/heads/main", "/a", "a/", "a//b", ".a", "a/.b", "a.lock",
        "a.lock/b",
        "a.", "a\x00b", "a\nb", "a\x7f", "a\u202eb", "a\u200b", "x" * 201,
    ],
)  # fmt: skip
def test_what_is_no_name_of_a_branch(name: str) -> None:
    assert not is_branch_name(name)


@pytest.mark.parametrize("name", ["main", "MAIN", "master", "trunk", "release/1", "ｍａｉｎ"])
def test_protected_branches(name: str) -> None:
    assert is_protected(name, ("main", "master", "release/*"), "trunk")


@pytest.mark.parametrize("name", ["main2", "my/main", "releases/1", "maintenance"])
def test_branches_that_are_not_protected(name: str) -> None:
    assert not is_protected(name, ("main", "master", "release/*"), "trunk")


def configured(place: Path, text: str) -> str:
    (place / ".git").mkdir(exist_ok=True)
    (place / ".git/config").write_text(text)
    return configured_url(place)


def test_the_address_stands_in_the_repositorys_configuration(tmp_path: Path) -> None:
    origin = '[remote "origin"]\n\turl = https://a.example/x\n'
    assert configured(tmp_path, origin) == "https://a.example/x"
    assert configured(tmp_path, origin + "\tpushurl = https://b.example/x\n") == "https://b.example/x"
    assert configured(tmp_path, '[remote "up"]\n\turl = https://a.example/x\n') == "https://a.example/x"
    for text in (
        "", "[broken", origin + "\turl = https://c.example/x\n", "[include]\n\tpath = /etc/evil\n",
        '[remote "a"]\n\turl = x\n[remote "b"]\n\turl = y\n',
    ):  # fmt: skip
        with pytest.raises(ForgeError):
            configured(tmp_path, text)


def test_a_configuration_that_is_a_link_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "real").write_text('[remote "origin"]\n\turl = https://a.example/x\n')
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").symlink_to(tmp_path / "real")
    with pytest.raises(ForgeError):
        configured_url(tmp_path)


def test_pages_on_which_a_pull_request_is_opened() -> None:
    github = Remote("x", "ssh", "github.com", "acme/shop")
    assert github.page_for("fix", "main") == "https://github.com/acme/shop/compare/main...fix?expand=1"
    gitlab = Remote("x", "https", "gitlab.example.org", "a/b/c")
    assert gitlab.page_for("fix", "main").startswith("https://gitlab.example.org/a/b/c/-/merge_requests/new?")
    assert Remote("x", "https", "git.example.org", "a/b").page_for("fix", "main") == ""


@pytest.mark.parametrize(
    ("config", "named", "can"),
    [
        ("", "", False),
        ('[branch "main"]\n\tremote = origin\n', "", False),
        ('[remote "origin"]\n\turl = git@github.com:acme/shop.git\n', "", True),
        ("", "git@github.com:acme/shop.git", True),
        ("[remote\n", "", True),  # what is wrong with it is told by the command
    ],
)
def test_a_button_that_pushes_is_there_where_there_is_a_remote(
    tmp_path: Path, config: str, named: str, *, can: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(config)
    base = settings(tmp_path)
    section = replace(base.config.git, remote=named)
    assert has_remote(replace(base, config=replace(base.config, git=section))) is can
