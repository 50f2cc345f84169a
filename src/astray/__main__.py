"""``python -m astray`` is the command ``astray``."""

from __future__ import annotations

import sys

from astray.cli import main

if __name__ == "__main__":
    sys.exit(main())
