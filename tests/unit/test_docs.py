"""What the README and the docs name exists: make targets, commands and their flags, files, links, tests, modules.

The changelog is left out: it also names what an earlier version had.
"""

import importlib
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from instaslice.cli.main import COMMANDS, instaslice

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "instaslice"
PAGES = sorted(page for folder in ("", "docs/**/", "designs/", "charts/*/") for page in ROOT.glob(f"{folder}*.md"))
PAGES.remove(ROOT / "CHANGELOG.md")

FENCED = re.compile(r"^```\w*\n(.*?)^```|^((?: {4}.*\n)+)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
PREFIX = re.compile(r"^(?:\$ |sudo -E |[A-Z_]+=\S+ )*")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w./~…-])(?:bench|tests|src|scripts|docs|designs|charts)/[\w./-]*")
IN_PACKAGE = re.compile(rf"({'|'.join(each.parent.name for each in SOURCE.glob('*/__init__.py'))})/[\w/]*(\.py)?")
TEST = re.compile(r"\btest_\w+\b(?!\.py)")


def blocks(text: str) -> list[str]:
    return [fenced or indented for fenced, indented in FENCED.findall(text)]


def spans(text: str) -> list[str]:
    return SPAN.findall(FENCED.sub("", text))


def commands(text: str) -> list[list[str]]:
    """The words of every `make` and `instaslice` command in code."""
    lines = [line for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in [*lines, *spans(text)] for part in re.split(r"&&|;|\|", line)]
    bare = [PREFIX.sub("", part) for part in parts]
    return [shlex.split(part, comments=True) for part in bare if re.match(r"(make|instaslice)(\s+[a-z-]|$)", part)]


def everywhere(find):
    """One case for each thing found: the page and the thing."""
    found = {(page, thing) for page in PAGES for thing in find(page.read_text())}
    return [
        pytest.param(page, thing, id=f"{page.relative_to(ROOT)}: {thing}")
        for page, thing in sorted(found, key=lambda each: (each[0], str(each[1])))
    ]


def test_how_code_is_found():
    text = """Run `make demo DOWNLOAD=1`, `instaslice up --port 1` or `kubectl describe instaslice NODE`.
```console
$ make setup && . .venv/bin/activate
$ sudo -E instaslice up --kueue \\
    --nodes 0    # as root
Cluster 'default' is up.
```
    instaslice simulate
"""
    assert [" ".join(words) for words in commands(text)] == [
        "make setup",
        "instaslice up --kueue --nodes 0",
        "instaslice simulate",
        "make demo DOWNLOAD=1",
        "instaslice up --port 1",
    ]


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def targets(text):
    """Words of a `make` command that are targets: not variables, and not placeholders."""
    return [word for name, *words in commands(text) if name == "make" for word in words if "=" not in word]


@pytest.mark.parametrize("page, target", everywhere(targets))
def test_a_make_target_exists(page, target):
    assert target in TARGETS


def test_make_help_lists_every_target():
    done = subprocess.run(["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert TARGETS - set(done.stdout.split()) == {"help"}


def flags_of(words: Sequence[str]) -> set[str]:
    """The flags of a command, which is the first of these words, or the first two where it is in a group."""
    context = click.Context(instaslice)
    found: click.Command | None = instaslice
    while isinstance(found, click.Group) and words and words[0][0] not in "-[":
        found = found.get_command(context, words[0])
        words = words[1:]
    assert found is not None, "the group has no such command"
    return {"-h", "--help"} | {flag for each in found.params for flag in (*each.opts, *each.secondary_opts)}


def every_command() -> Iterator[tuple[str, ...]]:
    context = click.Context(instaslice)
    for name in COMMANDS:
        found = instaslice.get_command(context, name)
        yield from (
            [(name, each) for each in found.list_commands(context)] if isinstance(found, click.Group) else [(name,)]
        )


def calls(text):
    return [tuple(words) for name, *words in commands(text) if name == "instaslice" and words]


@pytest.mark.parametrize("page, words", everywhere(calls))
def test_a_command_exists_and_has_the_flags_that_it_is_given(page, words):
    assert words[0] in COMMANDS
    assert {each.partition("=")[0] for each in words if each.startswith("-") and each != "-"} <= flags_of(words)


def lone_flags(text):
    return [flag for span in spans(text) for flag in re.findall(r"^--[a-z-]+", span)]


@pytest.mark.parametrize("page, flag", everywhere(lone_flags))
def test_a_flag_that_stands_alone_is_one_of_a_command(page, flag):
    assert any(flag in flags_of(command) for command in every_command())


def links(text):
    return [each for each in LINK.findall(FENCED.sub("", text)) if "://" not in each]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page, link", everywhere(links))
def test_a_link_leads_somewhere(page, link):
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    assert target.exists()
    assert not anchor or anchor in anchors(target)


def paths(text):
    code = "\n".join([*blocks(text), *spans(text)])
    inside = [f"src/instaslice/{span}" for span in spans(text) if IN_PACKAGE.fullmatch(span)]
    return inside + [each.rstrip(".") for each in PATH.findall(code)]


@pytest.mark.parametrize("page, path", everywhere(paths))
def test_a_file_exists(page, path):
    assert (ROOT / path).exists()


def modules(text):
    return [span for span in spans(text) if re.fullmatch(r"instaslice(\.[A-Za-z_]+)+", span)]


@pytest.mark.parametrize("page, name", everywhere(modules))
def test_a_module_or_what_it_defines_exists(page, name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("page, name", everywhere(lambda text: [n for span in spans(text) for n in TEST.findall(span)]))
def test_a_test_exists(page, name):
    assert any(f"def {name}(" in file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
