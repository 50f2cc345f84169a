"""Metrics: pure functions of scores, labels and offsets. Scores are normalities: high is normal.

>>> import numpy as np
>>> score, label = np.array([-4.0, -0.5, 0.1, 0.8]), np.array([True, False, False, False])
>>> auroc(score, label), average_precision(score, label), at_threshold(score, label, eps=-2.0).f1
(1.0, 1.0, 1.0)
"""

from __future__ import annotations

from astray_benchmark.metrics.affiliation import affiliation
from astray_benchmark.metrics.delay import Delays, FalseAlarms, begun, detection_delay, false_alarms, onsets
from astray_benchmark.metrics.intervals import Interval, mean_interval
from astray_benchmark.metrics.ranges import Ranges, range_decisions, runs
from astray_benchmark.metrics.ranking import (
    Curve,
    Decisions,
    anomaly_score,
    at_threshold,
    auroc,
    average_precision,
    decisions,
    precision_recall_curve,
    roc_curve,
    unscored_as_normal,
)
from astray_benchmark.metrics.uncertainty import (
    Reliability,
    Review,
    RiskCoverage,
    error_auroc,
    reliability,
    review,
    risk_coverage,
)
from astray_benchmark.metrics.vus import vus_pr

__all__ = [
    "Curve",
    "Decisions",
    "Delays",
    "FalseAlarms",
    "Interval",
    "Ranges",
    "Reliability",
    "Review",
    "RiskCoverage",
    "affiliation",
    "anomaly_score",
    "at_threshold",
    "auroc",
    "average_precision",
    "begun",
    "decisions",
    "detection_delay",
    "error_auroc",
    "false_alarms",
    "mean_interval",
    "onsets",
    "precision_recall_curve",
    "range_decisions",
    "reliability",
    "review",
    "risk_coverage",
    "roc_curve",
    "runs",
    "unscored_as_normal",
    "vus_pr",
]
