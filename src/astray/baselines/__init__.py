"""Baselines: what a sequential anomaly detector is compared with, behind one interface.

>>> sorted(BASELINES)  # doctest: +ELLIPSIS
['fnn-ae', 'iforest', 'iforest-location', 'knn-location', ...]
>>> BASELINES["lof"](seed=1)
LOF(interval=30.0, seed=1, location=False)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from astray.baselines.autoencoders import FNNAutoencoder, LSTMAutoencoder, Training
from astray.baselines.baseline import Baseline, StepScores
from astray.baselines.classic import LOF, IsolationForest, KNNLocation, OneClassSVM

BASELINES: dict[str, Callable[..., Baseline]] = {
    "knn-location": KNNLocation,
    "knn-location-start": partial(KNNLocation, start=True),
    "lof": LOF,
    "lof-location": partial(LOF, location=True),
    "ocsvm": OneClassSVM,
    "ocsvm-location": partial(OneClassSVM, location=True),
    "iforest": IsolationForest,
    "iforest-location": partial(IsolationForest, location=True),
    "fnn-ae": FNNAutoencoder,
    "lstm-ae": LSTMAutoencoder,
}
"""Every baseline by its short name; call with ``interval`` and ``seed``, or with nothing."""

__all__ = [
    "BASELINES",
    "LOF",
    "Baseline",
    "FNNAutoencoder",
    "IsolationForest",
    "KNNLocation",
    "LSTMAutoencoder",
    "OneClassSVM",
    "StepScores",
    "Training",
]
