"""What may stand in ``sandbox.hosts``."""

from __future__ import annotations

import pytest

from codebutler.config.load import check_layer
from codebutler.domain.errors import ConfigError


@pytest.mark.parametrize(
    "host",
    [
        "pypi.org",
        "*.pythonhosted.org",
        "localhost:3000",
        "10.0.0.5:5432",
        "[::1]:8080",
        "a-b.example:8443",
        "x",
    ],
)
def test_names_and_addresses_are_taken(host: str) -> None:
    assert check_layer({"sandbox": {"hosts": [host]}}, "here").sandbox.hosts == (host,)


@pytest.mark.parametrize(
    "host",
    ["", "*", "*.", "https://pypi.org", "pypi.org/simple", "a b", "::1", "a*.example", "*.*.example", "user@a.example",
     "a.example:", "a.example:123456", "a.example\n", "bücher.example"],
)  # fmt: skip
def test_anything_else_is_refused_with_its_key(host: str) -> None:
    with pytest.raises(ConfigError, match=r"hosts"):
        check_layer({"sandbox": {"hosts": [host]}}, "here")
