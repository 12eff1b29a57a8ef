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


def rows_and_what_is_cut_off(page, width, folder):
    frame = folder / "frame.html"
    frame.write_text(MEASURE.format(width=width, page=html.escape(page.read_text(encoding="utf-8"))), encoding="utf-8")
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
    quiet = (*quiet, "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000")
    shown = subprocess.run(
        [
            CHROMIUM,
            *quiet,
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1400,900",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'id="answer">(\d+) rows;(.*?);</p>', shown.stdout, re.DOTALL)
    assert found, shown.stderr[-2000:]
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
