"""``SKILL.md``: what is a skill, and what is wrong with what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.skills import Skill, SkillError, is_name, parse_skill, template

GOOD = b"---\nname: deploy\ndescription: How we deploy.\nallowed-tools: [Bash]\n---\n\n# Deploy\n\n---\nSlowly.\n"


def test_a_skill_is_its_front_matter_and_its_instructions() -> None:
    skill = parse_skill(GOOD, "deploy", "home")
    assert skill == Skill("deploy", "How we deploy.", "# Deploy\n\n---\nSlowly.", "home")
    assert skill.kind == "prompt"


def test_with_a_program_it_runs_and_needs_no_instructions() -> None:
    skill = parse_skill(b"---\nname: count\ndescription: Counts.\n---\n", "count", "repo", b"print(1)\n")
    assert (skill.kind, skill.program) == ("code", "print(1)\n")


def test_windows_lines_and_byte_order_marks_are_taken() -> None:
    assert parse_skill(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"), "deploy", "home").name == "deploy"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "start it with front matter"),
        (b"# Deploy\n", "start it with front matter"),
        (b"---\nname: deploy\n", "start it with front matter"),
        (b"---\nname: deploy\n---\nx", "description"),
        (b"---\nname: deploy\ndescription: ''\n---\nx", "description"),
        (b"---\nname: Deploy It\ndescription: x\n---\nx", "name"),
        (b"---\nname: other\ndescription: x\n---\nx", "its directory is called deploy"),
        (b"---\nname: [deploy\ndescription: x\n---\nx", "deploy/SKILL.md"),
        (b"---\nname: deploy\ndescription: !!python/object/apply:os.system [x]\n---\nx", "deploy/SKILL.md"),
        (b"---\n- a\n---\nx", "deploy/SKILL.md"),
        (b"---\nname: deploy\ndescription: x\n---\n \n", "add the instructions"),
        (b"---\nname: deploy\ndescription: \xff\n---\nx", "UTF-8"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file(data: bytes, line: str) -> None:
    with pytest.raises(SkillError, match="deploy/SKILL") as error:
        parse_skill(data, "deploy", "repo")
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_what_explodes_when_it_is_read_stays_small() -> None:
    levels = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
    bomb = f"---\nx0: &x0 lol\n{levels}\nname: deploy\ndescription: x\n---\nx".encode()
    assert parse_skill(bomb, "deploy", "repo").description == "x"


@given(st.binary(max_size=300))
def test_anything_is_a_skill_or_an_error(data: bytes) -> None:
    try:
        parse_skill(b"---\n" + data, "deploy", "repo")
    except SkillError as error:
        assert "\n" not in str(error)  # noqa: PT017 - whatever comes, it is one line


@pytest.mark.parametrize("description", ["Plain.", 'With "quotes": and # marks', "", "two\nlines", "- dash"])
def test_a_new_one_can_be_read(description: str) -> None:
    skill = parse_skill(template("deploy", description).encode(), "deploy", "home")
    assert skill.description


@pytest.mark.parametrize("name", ["a", "review-diff", "a1-b2", "x" * 64])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "../a", "a/b", ".", "a\n", "x" * 65])
def test_no_names(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("field", ["x: 2001-99-99", "x: " + "1" * 5000, "x: " + "[" * 60_000])
def test_a_front_matter_that_cannot_be_built_is_a_problem_and_no_fault(field: str) -> None:
    text = f"---\nname: deploy\ndescription: d\n{field}\n---\nDo it.\n"
    with pytest.raises(SkillError, match=r"deploy/SKILL\.md: "):
        parse_skill(text.encode(), "deploy", "home")


@pytest.mark.parametrize("unseen", ["\U000e0073", "\u202e", "\u2066", "\x1b", "\x00", "\x9b"])
def test_what_nobody_sees_is_in_no_skill(unseen: str) -> None:
    text = f"---\nname: deploy\ndescription: d\n---\nDo{unseen} it.\n"
    told = rf"deploy/SKILL\.md: line 5 contains an invisible character \(U\+{ord(unseen):04X}\)"
    with pytest.raises(SkillError, match=told):
        parse_skill(text.encode(), "deploy", "repo")
    clean = text.replace(unseen, "")
    with pytest.raises(SkillError, match=r"deploy/skill\.py: line 1"):
        parse_skill(clean.encode(), "deploy", "repo", f"x = 1 #{unseen}".encode())
    assert parse_skill(text.replace(unseen, " 👩\u200d💻").encode(), "deploy", "repo").instructions
