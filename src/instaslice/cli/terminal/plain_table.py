"""A table of plain text: columns as wide as their longest cell, two spaces apart."""

from collections.abc import Sequence

from instaslice.cli.terminal.plain_text import plain


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The heading and one line per row."""
    lines = [[plain(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines]
