"""The options of a command as typer takes them; those of a training are made from the fields of `Config`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from typing import Any, get_args, get_type_hints

import typer
import typer.core

from torchlgm.cli.config import Config, as_option


class Grouped(typer.core.TyperCommand):
    """A command whose help lists its options by their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                panel = getattr(parameter, "rich_help_panel", None)
                kind = "Arguments" if parameter.param_type_name == "argument" else panel or "Options"
                groups.setdefault(kind, []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)


def option(
    help: str,
    means: object = None,
    *names: str,
    metavar: str | None = None,
    min: float | None = None,
    group: str | None = None,
) -> Any:
    """An option that is None unless it is given, with the meaning given by `means`."""
    shown = help if means is None else f"{help} [default: {means}]"
    return typer.Option(*names, help=shown, metavar=metavar, show_default=False, min=min, rich_help_panel=group)


def config_option(name: str, help: str | None = None, means: str | None = None) -> Any:
    """The option of a field of `Config`, for another command than `train`."""
    metadata = next(field for field in fields(Config) if field.name == name).metadata
    return option(help or metadata["help"], means or metadata["means"], metavar=metadata["metavar"])


def takes_config(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Config`; those that are given come to it as the dict `options`."""
    hints, types = get_type_hints(command, include_extras=True), get_type_hints(Config)
    options = {field.name: _parameter(field, types[field.name]) for field in fields(Config) if field.metadata}

    @wraps(command)
    def with_options(**given: Any) -> None:
        values = {name: given.pop(name) for name in options}
        command(options={name: value for name, value in values.items() if value is not None}, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        new = list(options.values()) if name == "options" else [parameter.replace(annotation=hints[name])]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in new]
    with_options.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _parameter(field: Field[Any], kind: Any) -> inspect.Parameter:
    flag = as_option(field.name)
    names = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,)
    metadata = field.metadata
    info = option(metadata["help"], metadata["means"], *names, metavar=metadata["metavar"], group=metadata["group"])
    info.default = None
    annotation = field.metadata["choices"] or _read_as(kind)
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=annotation | None)


def _read_as(kind: Any) -> Any:
    """What typer reads for a field of this type: text for a range, a list for a tuple."""
    kind = next((part for part in get_args(kind) if part is not type(None)), kind) if _is_optional(kind) else kind
    if kind == tuple[float, float]:
        return str
    return list[str] if kind == tuple[str, ...] else kind


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)
