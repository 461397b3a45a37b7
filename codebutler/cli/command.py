"""A command and a group of commands with our own help: plain names for arguments, grouped, as wide as the
terminal. `typer`'s needs a large library or shows Python's types. And the options
that each chat's platform defines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer._click import Command as AnyCommand
from typer._click import Context, HelpFormatter
from typer._click.exceptions import UsageError
from typer.core import TyperCommand, TyperGroup

from codebutler.cli.output import TEXT_COLUMNS, columns, definitions, painted, wrap

if TYPE_CHECKING:
    from codebutler.chat.platform import Given, Option, Platform

HELP_NAMES = ("-h", "--help")


class CliCommand(TyperCommand):
    """One command."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        for parameter in self.params:
            parameter.metavar = metavar(parameter)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The whole help page."""
        formatter.write("\n".join(_lines(self, ctx)))


class CliGroup(TyperGroup):
    """Several commands under one name. ``sections``: their names under headings; the rest comes last."""

    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    synonyms: Mapping[str, str] = MappingProxyType({})
    """Names that other programs have for our commands."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, AnyCommand | None, list[str]]:
        """The command. Raises UsageError, which names the one that was probably meant."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = [self.synonyms[name]] if name in self.synonyms else get_close_matches(name, self.commands, 1)
        meant = f", did you mean `{ctx.command_path} {near[0]}`?" if near else ""
        raise UsageError(f"unknown command {name!r}{meant}", ctx)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The whole help page."""
        lines = _lines(self, ctx)
        for heading, names in self._commands_by_section():
            rows = [(name, self.commands[name].get_short_help_str(200)) for name in names]
            lines += ["", painted(f"{heading}:", "bold"), *definitions(rows, "cyan")]
        formatter.write("\n".join(lines))

    def _commands_by_section(self) -> Iterable[tuple[str, list[str]]]:
        remaining = [name for name, command in self.commands.items() if not command.hidden]
        for heading, names in self.sections:
            here = [name for name in names if name in remaining]
            remaining = [name for name in remaining if name not in here]
            if here:
                yield heading, here
        if remaining:
            yield "Other commands" if self.sections else "Commands", remaining


class App(typer.Typer):
    """A group with commands of ours."""

    def __init__(self, text: str, cls: type[CliGroup] = CliGroup, **settings: Any) -> None:
        super().__init__(cls=cls, help=text, add_completion=False, rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """As in typer."""
        return super().command(name, **{"cls": CliCommand, **settings})


def metavar(parameter: Any) -> str:
    """The placeholder of its value: its choices, N for a number, else its name in capitals."""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    described = parameter.type_descriptor
    if described.choices is not None:
        return "|".join(map(str, described.choices))
    if described.annotation in (int, float):
        return "N"
    return str(max(parameter.opts, key=len)).rpartition("-")[2].upper()


def _lines(command: AnyCommand, ctx: Context) -> list[str]:
    """Usage, what it does, its arguments and options."""
    width = min(columns(), TEXT_COLUMNS)
    parameters = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    options = [each for each in parameters if each.param_type_name == "option"]
    words = [ctx.command_path, "[OPTIONS]", *map(_usage, arguments)]
    lines = [
        f"{painted('Usage:', 'bold')} {' '.join(words)}{' COMMAND …' if isinstance(command, CliGroup) else ''}"
    ]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += ["", *wrap(" ".join(paragraph.split()), width)]
    for heading, rows in (("Arguments", map(_argument, arguments)), ("Options", map(_option, options))):
        if shown := list(rows):
            lines += ["", painted(f"{heading}:", "bold"), *definitions(shown, "cyan")]
    return lines


def _usage(argument: Any) -> str:
    name = f"{argument.metavar}…" if argument.nargs != 1 else str(argument.metavar)
    return name if argument.required else f"[{name}]"


def _argument(argument: Any) -> tuple[str, str]:
    choices = argument.type_descriptor.choices
    text = _help_text(argument)
    return str(argument.metavar), f"{text} [{', '.join(map(str, choices))}]" if choices else text


def _option(option: Any) -> tuple[str, str]:
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    value = "" if option.is_flag else f" {option.metavar or metavar(option)}"
    return f"{names}{value}", _help_text(option)


def _help_text(parameter: Any) -> str:
    default, text = parameter.default, parameter.help or ""
    has_default = isinstance(default, (int, str)) and not isinstance(default, bool) and default
    return f"{text} [default: {default}]" if has_default else text


def with_options(command: Callable[..., None], options: Iterable[Option]) -> Callable[..., None]:
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
    typer_option = typer.Option(option.flag, help=option.help, metavar=option.metavar)
    return inspect.Parameter(
        _name(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=None if option.many else "",
        annotation=Annotated[kind, typer_option],
    )


def options_by_platform(
    options: Mapping[Platform, Sequence[Option]], values: Mapping[str, Any]
) -> dict[Platform, Given]:
    """The given options by platform; without platforms that got none."""
    found = {
        each: {
            option.key: value.strip() if isinstance(value, str) else value
            for option in options_of_chat
            if (value := values.get(_name(option)))
        }
        for each, options_of_chat in options.items()
    }
    return {each: given for each, given in found.items() if given}


@contextmanager
def reporting_bad_options() -> Iterator[None]:
    """Reports an option that a platform cannot use like one that the command line refuses."""
    from codebutler.chat.platform import BadOptionError

    try:
        yield
    except BadOptionError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{error.flag}'" if error.flag else None) from error


def _name(option: Option) -> str:
    return option.flag.removeprefix("--").replace("-", "_")
