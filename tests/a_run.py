"""Runs a command of astray with small jobs, and prints a line when a job is done.

Tests kill it, or something that it needs, in the middle: ``python a_run.py enroll MODEL FILE ...``. With
``HOLD_AFTER=3`` in its environment it does not handle a fourth job until its standard input is closed.
"""

from __future__ import annotations

import os
import sys

from astray.cli import inputs, main, workers
from astray.jobs import slabs
from astray.jobs.work import Step


class WorkDone(workers.WorkDone):
    """Counts jobs, and prints each one."""

    left = int(os.environ.get("HOLD_AFTER", "0"))

    def add(self, step: Step) -> None:
        """Counts a job, and prints the worker that did it, unless an earlier run did it."""
        super().add(step)
        if step.worker:
            print(f"done by {step.worker}", flush=True)
            self.left -= 1
            if self.left == 0:
                sys.stdin.read()


if __name__ == "__main__":
    slabs.AT_A_TIME, slabs.SLAB_FIXES = 2_000, 10_000
    inputs.STREAMED_BYTES, inputs.BATCH_ROWS = 0, 10_000
    workers.WorkDone = WorkDone  # type: ignore[misc]
    sys.exit(main(sys.argv[1:]))
