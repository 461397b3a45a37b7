"""Command options for the chats: each platform defines its own, and gets their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from codebutler.chat.platform import Given, Option, Platform


def taking(command: Callable[..., None], options: Iterable[Option]) -> Callable[..., None]:
    """The command with these options before its own; it gets them as keywords."""
    own = [
        each
        for each in inspect.signature(command, eval_str=True).parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    def run(**values: object) -> None:
        command(**values)

    signature = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*map(_parameter, options), *own)]
    )
    # Read by typer instead of the function's own.
    run.__signature__ = signature  # type: ignore[attr-defined]  # any function may have one
    run.__doc__ = command.__doc__
    return run


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any = list[str] | None if option.many else str
    told = typer.Option(option.flag, help=option.help, metavar=option.metavar)
    return inspect.Parameter(
        _name(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=None if option.many else "",
        annotation=Annotated[kind, told],
    )


def given_to(
    options: Mapping[Platform, Sequence[Option]], values: Mapping[str, Any]
) -> dict[Platform, Given]:
    """The given options by platform; without platforms that got none."""
    found = {
        each: {option.key: _stripped(value) for option in its if (value := values.get(_name(option)))}
        for each, its in options.items()
    }
    return {each: given for each, given in found.items() if given}


@contextmanager
def refusing() -> Iterator[None]:
    """Reports an option that a platform cannot use like one that the command line refuses."""
    from codebutler.chat.platform import BadOptionError

    try:
        yield
    except BadOptionError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{error.flag}'" if error.flag else None) from error


def _name(option: Option) -> str:
    return option.flag.removeprefix("--").replace("-", "_")


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value
