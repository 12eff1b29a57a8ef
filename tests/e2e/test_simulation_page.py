"""The page of `instaslice simulate --report` in a browser: nothing is cut off, on a desk or on a telephone.

What is on the page is tested without a browser, in tests/unit/simulate.
"""

import html
import re
import shutil
import subprocess
import sys

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """<body style="margin:0">
<iframe style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument, cut = new Set(), wide = page.documentElement;
  if (wide.scrollWidth > {width}) cut.add(`page ${{wide.scrollWidth}}`);
  for (const each of page.body.querySelectorAll("*")) {{
    const {{ left, right }} = each.getBoundingClientRect(), name = each.id || each.textContent.slice(0, 30);
    if (left < -1 || right > {width} + 1) cut.add(`${{each.tagName}} ${{name}}: ${{Math.round(right)}} px`);
  }}
  const rows = page.querySelectorAll("#results tr").length;
  document.body.innerHTML = `<p id="answer">${{rows}} rows;${{[...cut].slice(0, 5).join("; ")}};</p>`;
}});
</script></body>"""
"""A window of a browser without a screen is at least 500 px wide, so the page is in a frame."""


def drawn(file, folder):
    """The page as Chromium has it after its scripts have run."""
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
    quiet = (*quiet, "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000")
    profile = f"--user-data-dir={folder / 'profile'}"
    words = [CHROMIUM, *quiet, profile, "--window-size=1400,900", "--dump-dom", file.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return done.stdout or done.stderr


def rows_and_what_is_cut_off(page, width, folder):
    frame = folder / "frame.html"
    frame.write_text(MEASURE.format(width=width, page=html.escape(page.read_text(encoding="utf-8"))), encoding="utf-8")
    shown = drawn(frame, folder)
    found = re.search(r'id="answer">(\d+) rows;(.*?);</p>', shown, re.DOTALL)
    assert found, shown[-2000:]
    return int(found[1]), found[2]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize("width", [1300, 420])
@pytest.mark.parametrize(
    ("words", "policies"),
    [
        pytest.param(("--policy", "all", "--seeds", "2"), 8, id="every policy"),
        pytest.param(("--queue", "backfill", "--load", "0.9", "--create-ms", "250"), 1, id="pods that wait"),
        pytest.param(("--mix", ",".join(f"{n}x1g.5gb=1" for n in range(1, 15)), "--moves", "1"), 1, id="a long mix"),
    ],
)
def test_nothing_is_cut_off(words, policies, width, tmp_path):
    page = tmp_path / "out.html"
    small = ("--fleet", "2x8xA100-40GB", "--pods", "400", "--report", str(page))
    subprocess.run([sys.executable, "-m", "instaslice.cli", "simulate", *small, *words], check=True, timeout=120)
    assert rows_and_what_is_cut_off(page, width, tmp_path) == (1 + policies, "")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
def test_no_two_profiles_have_one_colour_and_models_are_named(tmp_path):
    page = tmp_path / "out.html"
    fleet = ("--fleet", "1x2xH200", "--fleet", "1x1xA30", "--fleet", "1x1xA100-40GB")
    small = (*fleet, "--pods", "400", "--report", str(page))
    subprocess.run([sys.executable, "-m", "instaslice.cli", "simulate", *small], check=True, timeout=120)
    shown = drawn(page, tmp_path)
    colours = re.findall(r'<i style="background:(.*?)">', re.search(r'id="key">(.*?)</div>', shown)[1])
    assert len(colours) == len(set(colours)) == 6 + 3 + 6 + 1, "and what is free"
    assert re.findall(r"node-0000\d/0<br>([^<]*)<", shown) == ["H200-141GB", "A30", "A100-40GB"]
