"""How this machine reaches its package index: for the build, and for nothing else.

A build runs behind a wall where the machine's pip configuration does not exist. What matters of it is handed over as
two secrets, which no layer and no history keeps: `pip`, a pip.conf, and `ca`, the certificate authorities.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HANDED_OVER = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout")
UV_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
"""Where a machine is set up for uv alone."""
AUTHORITIES = "/run/secrets/ca.pem"
"""Where the Dockerfile has the secret `ca`."""
SETTING = re.compile(r"^(?::env:|global|install)\.+([\w-]+)=(.*)$", re.MULTILINE)


def secrets(folder: Path) -> dict[str, Path]:
    """Secret → file, written into `folder`, which must be the caller's alone."""
    found = _settings()
    if "index-url" not in found and (index := next(filter(None, map(os.environ.get, UV_INDEXES)), None)):
        found["index-url"] = index
    lines = [f"{key} = {value}" for key, value in found.items() if key in HANDED_OVER]
    given = {}
    authorities = [found.get("cert"), *(os.environ.get(each) for each in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))]
    if file := next((each for each in authorities if each and Path(each).is_file()), None):
        lines.append(f"cert = {AUTHORITIES}")
        given["ca"] = Path(file)
    config = folder / "pip.conf"
    config.write_text("\n".join(["[global]", *lines, ""]))
    return {"pip": config, **given}


def _settings() -> dict[str, str]:
    """As pip itself merges its files and variables; the variables alone where there is no pip (uv makes none)."""
    for pip in ([sys.executable, "-m", "pip"], [shutil.which("pip3") or "pip"]):
        try:
            done = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return {key: _one_line(ast.literal_eval(value)) for key, value in SETTING.findall(done.stdout)}
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): _one_line(value)
        for name, value in os.environ.items()
        if name.startswith("PIP_")
    }


def _one_line(value: str) -> str:
    return " ".join(value.split())
