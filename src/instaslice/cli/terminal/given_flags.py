"""Which flags the user wrote, as opposed to those that have their default; and those that would have no effect."""

from collections.abc import Mapping

import click
from click.core import ParameterSource


def given(ctx: click.Context) -> frozenset[str]:
    """The flags that stand on the command line, by their long names."""
    return frozenset(
        max(each.opts, key=len)
        for each in ctx.command.params
        if each.name and ctx.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    )


def refuse_void(
    ctx: click.Context, *, beside: Mapping[str, tuple[str, ...]], without: Mapping[str, tuple[str, ...]]
) -> None:
    """Raises UsageError where a flag was given that has no effect `beside` another one, or `without` it."""
    written = given(ctx)
    for flag, others in beside.items():
        for other in others:
            if {flag, other} <= written:
                raise click.UsageError(f"{other} would have no effect beside {flag}; leave one of them out")
    for flag, others in without.items():
        for other in others:
            if other in written and flag not in written:
                raise click.UsageError(f"{other} would have no effect without {flag}; add {flag}, or leave {other} out")
