"""``python -m astray.benchmark``: the same as ``astray benchmark``."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy and torch are loaded

from astray.benchmark.command import command
from astray.cli.running import run

if __name__ == "__main__":
    try:
        sys.exit(run("benchmark", command, sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
