"""The wheel in an empty environment, away from the clone: everything that it needs is in it."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from instaslice.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """By way of the source distribution, as it is published."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([UV, "build", "--quiet", "--no-build-isolation", "--out-dir", out, ROOT], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs what the wheel installed: `installed("simulate", "--help")`."""
    home = tmp_path_factory.mktemp("elsewhere")
    python = home / "venv" / "bin" / "python"
    pip = [UV, "pip", "install", "--quiet", "--python", python]
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, home / "venv"], check=True)
    subprocess.run([*pip, "--require-hashes", "--requirement", ROOT / "requirements-runtime.txt"], check=True)
    subprocess.run([*pip, "--no-deps", wheel], check=True)

    def run(*words, program="instaslice", **variables):
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [python.with_name(program), *words],
            cwd=home,
            env={**clean, **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_it_has_the_whole_chart(wheel):
    chart = ROOT / "charts" / "instaslice"
    files = {str(file.relative_to(chart)) for file in chart.rglob("*") if file.is_file()}
    packed = zipfile.ZipFile(wheel).namelist()
    assert {name.removeprefix("instaslice/chart/") for name in packed if name.startswith("instaslice/chart/")} == files


def test_it_has_every_file_of_the_package(wheel):
    kept = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.removeprefix("src/") for name in kept.split()} - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_it_is_not_the_clone_that_runs(installed):
    found = installed("-c", "import instaslice; print(instaslice.__file__)", program="python").stdout
    assert "elsewhere" in found


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_what_it_imports(installed, command):
    done = installed(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: instaslice {command}")


def test_simulate_writes_its_page(installed, tmp_path):
    page = tmp_path / "report.html"
    done = installed("simulate", "--fleet", "1x2xA100-40GB", "--pods", "50", "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")


def test_the_demo_runs(installed, new_home):
    home = new_home("wheel")
    done = installed("demo", XDG_STATE_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"pod whale: Succeeded", done.stdout)
    assert done.stdout.rstrip().endswith("the cluster is gone again")
