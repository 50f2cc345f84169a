"""``python -m astray.cli``: the command line where no script is installed."""

from __future__ import annotations

import sys

from astray.cli import main

if __name__ == "__main__":
    sys.exit(main())
