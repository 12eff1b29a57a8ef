"""What a command that fails says: one line for each of our errors, and where it is for a defect."""

import asyncio
import os
import subprocess
import sys

import click
import pytest

from instaslice.cli import main as cli
from instaslice.errors import BadInput


async def side_by_side(*errors: Exception) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as outer:
        async with asyncio.TaskGroup() as inner:
            for error in errors:
                inner.create_task(fail(error))
        outer.create_task(asyncio.sleep(0))


def run(monkeypatch, *errors):
    @click.command()
    def command():
        asyncio.run(side_by_side(*errors))

    monkeypatch.setattr(cli, "instaslice", command)
    monkeypatch.setattr("sys.argv", ["instaslice"])
    cli.main()


def test_errors_of_tasks_are_a_line_each(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(monkeypatch, BadInput("one"), BadInput("another"))
    assert capsys.readouterr().err == "error: one\nerror: another\n"


@pytest.mark.parametrize("watch", [False, True], ids=["once", "from a task"])
def test_a_pipe_that_nobody_reads_any_more_ends_a_command_quietly(watch):
    code = f"""
import asyncio, click
from instaslice.cli import main as cli

async def show():
    async with asyncio.TaskGroup():
        click.echo("x")

@click.command()
def command():
    asyncio.run(show()) if {watch} else click.echo("x")

cli.instaslice = command
cli.main()
"""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_files_that_cannot_be_written_are_a_line_each_too(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(monkeypatch, FileExistsError(17, "File exists", "/dev/null"), BadInput("another"))
    assert capsys.readouterr().err == "error: /dev/null: File exists\nerror: another\n"
    with pytest.raises(ExceptionGroup):
        run(monkeypatch, TimeoutError())


def test_what_a_server_wrote_into_an_error_does_nothing_to_the_terminal(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(monkeypatch, BadInput("denied\x07\x1b[2J\nerror: all is lost"))
    assert capsys.readouterr().err == "error: denied\ufffd\ufffd[2J error: all is lost\n"


def test_a_defect_among_them_shows_where_it_is(monkeypatch):
    with pytest.raises(ExceptionGroup):
        run(monkeypatch, BadInput("one"), ZeroDivisionError())
