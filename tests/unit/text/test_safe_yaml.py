"""YAML that is meant to take for ever or to end the process is refused with words, in little time."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from codebutler.text.yaml import decode_yaml


class Shape(msgspec.Struct):
    """What is asked for; anything may stand beside it."""

    name: str


def _merging() -> str:
    lines = ["name: a", "l0: &l0 {x: 1}"]
    lines += [f"l{at}: &l{at} {{<<: [{','.join([f'*l{at - 1}'] * 9)}]}}" for at in range(1, 12)]
    return "\n".join(lines)


HOSTILE = {
    "merge keys that multiply": (_merging(), "more than 20 aliases"),
    "the same by their tag": (_merging().replace("<<", "!!merge m"), "more than 20 aliases"),
    "nested until the stack overflows": ("name: a\nx: " + "[" * 60_000, "levels deep"),
    "nested mappings": ("name: a\nx: " + "{a: " * 20_000, "levels deep"),
    "nested by indentation": ("name: a\nx:\n" + "\n".join(" " * at + "- " for at in range(1, 300)), "deep"),
    "a date that is none": ("name: a\nx: 2001-99-99", "month"),
    "a number without end": ("name: a\nx: " + "1" * 60_000, "digits"),
    "no base64": ("name: a\nx: !!binary é", "base64"),
    "an object": ("name: a\nx: !!python/object/apply:os.system [true]", "could not determine a constructor"),
    "an alias of nothing": ("name: *x", "undefined alias"),
    "a key that is no key": ("name: a\n? {b: 1}\n: c", "unhashable"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_yaml_is_refused(what: str) -> None:
    data, why = HOSTILE[what]
    # In a process of its own, with limits: what overflows the stack ends it.
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (10, 10));"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30));"
        "from tests.unit.text.test_safe_yaml import Shape; import msgspec;"
        "from codebutler.text.yaml import decode_yaml\n"
        "try: decode_yaml(sys.stdin.buffer.read(), Shape)\n"
        "except msgspec.DecodeError as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", limited], input=data.encode(), capture_output=True, check=True
    )
    assert why in run.stdout.decode()


def test_a_few_aliases_and_some_depth_are_fine() -> None:
    assert decode_yaml("x: &a {name: b}\n<<: *a", Shape).name == "b"
    assert decode_yaml("name: a\nx: " + "[" * 40 + "]" * 40, Shape).name == "a"


def test_another_shape_is_told_apart() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_yaml("name: 1", Shape)
