"""``python -m astray.benchmark``: the same as ``astray benchmark``."""

from __future__ import annotations

import sys

from astray.cli import main

if __name__ == "__main__":
    sys.exit(main(["benchmark", *sys.argv[1:]]))
