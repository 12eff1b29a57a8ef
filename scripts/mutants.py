"""Break the code in small ways and see whether the unit tests notice: `mutants.py [--count N] [--package P]`.

Each mutant is one change of one expression or statement in a function, made in a copy of the tree; the values of
constants and defaults are left alone. The tests that cover its package run there until the first fails. One that no
test fails for is printed with its diff. Which are tried is drawn by the seed from all that there are, so the share that
survives is an estimate: of 100, good to some eight points.
"""

import argparse
import ast
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from rich.progress import Progress

ROOT = Path(__file__).parents[1]
FAKE_WORLD = "tests/unit/controller"
TESTS = {
    "controller": [FAKE_WORLD],
    "doctor": ["tests/unit/doctor"],
    "placement": ["tests/unit/placement", FAKE_WORLD],
    "agent": ["tests/unit/agent"],
    "webhook": ["tests/unit/webhook"],
    "kube": ["tests/unit/kube", FAKE_WORLD],
}
COPIED = ("src", "tests", "bench", "charts", "pyproject.toml")
SLOWEST = 5.0
"""A mutant that takes so many times as long as the tests without one has made something endless, which is noticed."""
LONG = ("tests/unit/doctor/test_odd_objects.py", "tests/unit/controller/test_odd_objects_handled.py")
"""Left out: thousands of odd objects take a minute, and would for each mutant that survives."""
# Shrinking an example tells a person more, and takes minutes; here it is enough that there is one. Properties come
# last: most mutants die before.
PLUGIN = """
from hypothesis import Phase, settings
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None, derandomize=True)
settings.load_profile("mutants")

def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("hypothesis") is not None)
"""
FLIPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
UNDECIDING = ("annotation", "returns", "decorator_list", "bases", "defaults", "kw_defaults")
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    path: Path
    """Relative to the root."""
    line: int
    before: str
    source: str
    package: str

    def diff(self) -> str:
        lines = difflib.unified_diff(self.before.splitlines(), self.source.splitlines(), lineterm="", n=1)
        return "\n".join(f"    {line}" for line in list(lines)[3:])


def mutants(path: Path, package: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    source = (ROOT / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, text in _changes(ast.parse(source)):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        mutated = (source[:first] + text.encode() + source[last:]).decode()
        ast.parse(mutated)
        yield Mutant(path, node.lineno, source.decode(), mutated, package)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may be put in place of which node."""
    yield from _instead(node)
    for name, value in ast.iter_fields(node):
        # What types, asserts and texts say decides nothing, nor should a test know that a deadline is 120 s, not 121.
        if name in UNDECIDING or isinstance(node, ast.JoinedStr | ast.Assert):
            continue
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        if isinstance(node, ast.Module | ast.ClassDef) and name == "body":
            value = [each for each in value if not isinstance(each, ast.Assign | ast.AnnAssign)]
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and not _only_said(each):
                yield from _changes(each)


def _instead(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED:
            yield node, _changed(node, ops=[FLIPPED[type(op)]()])
        case ast.BoolOp(op=op):
            yield node, _changed(node, op=FLIPPED[type(op)]())
        case ast.BinOp(op=op) if type(op) in FLIPPED and not _is_text(node):
            yield node, _changed(node, op=FLIPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, f"({value + 1})"
            yield node, f"({value - 1})"
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
            yield node.func, SWAPPED[name]
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Return(value=None):
            yield node, "pass"
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) if not _answers(node):
            first = next((each for each in body if not _only_said(each)), None)
            if first is not None:
                yield first, "return"


def _changed(node: ast.expr, **fields: object) -> str:
    return f"({ast.unparse(type(node)(**dict(ast.iter_fields(node)) | fields))})"


def _answers(function: ast.AST) -> bool:
    """Whether it gives or yields anything: the others may be left early."""
    found = (ast.Yield, ast.YieldFrom)
    return any(isinstance(each, found) or (isinstance(each, ast.Return) and each.value) for each in ast.walk(function))


def _is_text(node: ast.AST) -> bool:
    """Whether a text is put together here, which cannot be taken apart."""
    return any(
        isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str) for each in ast.walk(node)
    )


def _only_said(node: ast.AST) -> bool:
    """A docstring, or something for the log."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
    return False


class Bench:
    """Copies of the tree in which mutants are tried, one a job."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copy = folder / str(number)
            for name in COPIED:
                here = ROOT / name
                if here.is_dir():
                    shutil.copytree(here, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(here, copy)
            (copy / "quick_examples.py").write_text(PLUGIN)
            self._copies.put(copy)
        self._seconds: dict[str, float] = {}

    def measure(self, package: str) -> None:
        """Run the tests without a mutant: they must pass, and of the copy's code."""
        copy = self._copies.get()
        began = time.monotonic()
        where = subprocess.run(
            [sys.executable, "-c", "import instaslice; print(instaslice.__file__)"],
            cwd=copy, env=_environment(copy), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert Path(where.stdout.strip()).is_relative_to(copy), f"the tests would run {where.stdout}"
        if said := self._failure(copy, package, None):
            raise SystemExit(f"{package}: its tests fail without any mutant; mend that first\n{said}")
        self._seconds[package] = time.monotonic() - began
        self._copies.put(copy)

    def survives(self, mutant: Mutant) -> bool:
        copy = self._copies.get()
        there = copy / mutant.path
        try:
            _write(there, mutant.source)
            return not self._failure(copy, mutant.package, SLOWEST * self._seconds[mutant.package] + 20)
        finally:
            _write(there, mutant.before)
            self._copies.put(copy)

    def _failure(self, copy: Path, package: str, seconds: float | None) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "quick_examples"]
        command += [*TESTS[package], *(f"--ignore={each}" for each in LONG)]
        run = subprocess.Popen(
            command, cwd=copy, env=_environment(copy), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return "it does not end"
        return said[-2000:] if run.returncode else ""


def _write(there: Path, source: str) -> None:
    there.write_text(source)
    # Bytecode goes by the second and the size: that of another mutant could pass for this one's.
    shutil.rmtree(there.parent / "__pycache__", ignore_errors=True)


def _environment(copy: Path) -> dict[str, str]:
    # Before the editable install.
    return {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}


def _files(package: str) -> list[Path]:
    """Those of a package and of what is below it, but for packages that are named themselves, and generated ones."""
    folder = ROOT / "src/instaslice"
    others = [folder / each for each in TESTS if each.startswith(f"{package}/")]
    found = sorted((folder / package).rglob("*.py"))
    return [each for each in found if not each.name.endswith("_pb2.py") and not {*others} & {*each.parents}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="mutants to try; 0 tries all")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--package", action="append", choices=TESTS, help="only of this one; may be given again")
    parser.add_argument("--file", action="append", default=[], help="only of files of this name; may be given again")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the copies go then, too
    packages = given.package or list(TESTS)
    every = [
        mutant
        for package in packages
        for path in _files(package)
        if not given.file or path.name in given.file
        for mutant in mutants(path.relative_to(ROOT), package)
    ]
    drawn = random.Random(given.seed).sample(every, min(given.count or len(every), len(every)))
    print(f"{len(drawn)} of {len(every)} mutants of {', '.join(packages)}, drawn by --seed {given.seed}")
    survivors = 0
    with tempfile.TemporaryDirectory() as folder, Progress(disable=not sys.stdout.isatty()) as progress:
        bench = Bench(Path(folder), given.jobs)
        for package in {mutant.package for mutant in drawn}:
            bench.measure(package)
        bar = progress.add_task("trying", total=len(drawn))
        with ThreadPoolExecutor(given.jobs) as pool:
            for mutant, survives in zip(drawn, pool.map(bench.survives, drawn), strict=True):
                progress.advance(bar)
                if survives:  # in the order drawn, so that two runs can be compared
                    survivors += 1
                    progress.console.print(
                        f"{mutant.path}:{mutant.line}\n{mutant.diff()}\n", markup=False, highlight=False, soft_wrap=True
                    )
    killed = len(drawn) - survivors
    share = survivors / max(1, len(drawn))
    print(f"RESULT mutants={len(drawn)} killed={killed} survived={survivors} survival={share:.3f} seed={given.seed}")


if __name__ == "__main__":
    main()
