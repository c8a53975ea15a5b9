"""The reference pages are what the code says today."""

from __future__ import annotations

import subprocess
import sys

from docs.pages import ROOT


def test_the_reference_is_current() -> None:
    script = ROOT / "docs" / "generate_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
