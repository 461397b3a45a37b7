"""The patterns tried on what a shell is given: the same decisions as Python's own, in linear time."""

from __future__ import annotations

import re
import time
from itertools import product

import pytest

from codebutler.config.programs import MAX_SHELL_CHARS, objection
from codebutler.config.schema import AuthorizationSection, Config

# The built-in list as a backtracking engine takes it.
BACKTRACKING = (
    r"\brm\s+(-\S+\s+)*-(?=[a-z]*[rR])[a-zA-Z]+\s+(-\S+\s+)*(/|~|\$HOME)/?\*?(\s|$)",
    r"\bmkfs(\.\w+)?\b",
    r"\bdd\b.*\bof=/dev/(?!null\b|stdout\b)",
    r":\(\)\s*\{.*\};\s*:",
    r"(^|[;&|(]|\bsudo|\bsystemctl)\s*(shutdown|reboot|halt|poweroff)\b",
    r">\s*/dev/(sd|nvme|vd)",
)
BEFORE = ("", "sudo ", "make; ", "make &&", "cd x\n", "(", "grep ", "farm", "systemctl ")
REMOVALS = [
    f"rm{flags} {what}{end}"
    for flags, what, end in product(
        ("", " -r", " -R", " -rf", " -fr", " -f", " -fR", " -Rf", " -r -f", " -f -r", " -v --no-preserve-root -rf",
         " -rf --no-preserve-root", " -Fr", " -FR", " -fV", " --recursive", " -r1", "\t-rf"),
        ("/", "~", "$HOME", "/*", "~/", "~/*", "$HOME/", "/tmp", "build", "~/notes", "./", "", "-r /", "/ x"),
        ("", " ", "\n", "; ls", " /"),
    )
]  # fmt: skip
COPIES = [
    f"dd if=/dev/zero {between}of=/dev/{device}"
    for between, device in product(
        ("", "bs=1M ", "\n"),
        ("sda", "sdb1", "nvme0n1", "null", "null bs=1", "nullb0", "nst0", "st0", "stdout", "stdout;", "stdouts",
         "stderr", "stdin", "vda", "mapper/x", "disk/by-id/y", "shm/x", "nbd0", "null/../sda", "loop0", "Null"),
    )
]  # fmt: skip
OTHERS = (
    *("mkfs.ext4 /dev/sda", "mkfs -t ext4", "mkfs.", "mkfsx", "man mkfs.xfs", "x-mkfs"),
    *(":(){ :|:& };:", ":() { :|: & };  :", ":(){ :; }", "f(){ f|f& };f"),
    *(
        "shutdown now",
        "reboot",
        "halt",
        "poweroff",
        "rebooting",
        "shutdown-x",
        "git log --grep halt",
        "a | reboot",
    ),
    *("echo x >/dev/sda", "echo x > /dev/nvme0n1", "cat >/dev/vda", "cat > /dev/null", "cat </dev/sda"),
    *("ls", "make test", "git push", "rm -rf build\nrm -rf /\n", "", "\0", "\ud800rm -rf /", "ä rm -rf /"),
)


def test_the_built_in_list_decides_as_a_backtracking_engine_does() -> None:
    config, refused = Config(), 0
    corpus = [before + said for before, said in product(BEFORE, (*REMOVALS, *COPIES, *OTHERS))]
    for command in corpus:
        expected = any(re.search(pattern, command) for pattern in BACKTRACKING)
        assert (objection(config, command) != "") is expected, command
        refused += expected
    assert 1000 < refused < len(corpus) - 1000


def seconds(config: Config, command: str) -> float:
    """The least of three."""
    took = []
    for _ in range(3):
        started = time.perf_counter()
        objection(config, command)
        took.append(time.perf_counter() - started)
    return min(took)


@pytest.mark.parametrize(
    "piece", ["-rm ", "rm -r ", "rm -r -", "dd of=/dev/null ", ":(){ ", "sudo ", "> ", "- ", "a"]
)
def test_the_time_grows_with_the_length_not_with_its_square(piece: str) -> None:
    config = Config(
        authorization=AuthorizationSection(
            blocklist=(*AuthorizationSection().blocklist, r"(a+)+$", r"(\S+\s*)+;", r"(.*)*x(.*)*y"),
        )
    )
    text = (piece * MAX_SHELL_CHARS)[: MAX_SHELL_CHARS - 1]
    seconds(config, text)
    # Cubic time, which a backtracking engine takes, would be 512 times as much.
    assert seconds(config, text) < 64 * seconds(config, text[: len(text) // 8])


def test_a_newline_at_the_end_is_no_way_around_a_pattern() -> None:
    section = AuthorizationSection(blocklist=(r"^git push$",), allowlist=(r"^(git push|ls)$",))
    assert objection(Config(authorization=section), "git push\n") == "on the blocklist"
    assert objection(Config(authorization=section), "ls\n") == ""
    assert objection(Config(authorization=section), "ls\nid") == "not on the allowlist"
