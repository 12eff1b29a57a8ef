"""Text of a cluster on a terminal: what users and webhooks wrote stands in Events, conditions and errors."""

import click


def echo(text: str, *, err: bool = False) -> None:
    """Print one line, without what a terminal would act on."""
    click.echo(plain(text), err=err)


def plain(text: str) -> str:
    """One line: line breaks and tabs become spaces, control characters and what turns the direction of text U+FFFD."""
    return "".join(each if each.isprintable() else " " if each.isspace() else "\ufffd" for each in text)
