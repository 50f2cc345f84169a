"""Baselines: what a sequential anomaly detector is compared with, behind one interface.

>>> sorted(BASELINES)  # doctest: +ELLIPSIS
['cell-counts', 'cell-trigram', 'fnn-ae', 'iforest', ...]
>>> BASELINES["lof"](seed=1)
LOF(interval=30.0, seed=1, location=False)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from astray.baselines.autoencoders import FNNAutoencoder, LSTMAutoencoder, Training
from astray.baselines.baseline import Baseline, StepScores
from astray.baselines.cells import CellCounts, CellTrigram, TripLength
from astray.baselines.classic import LOF, IsolationForest, KNNLocation, OneClassSVM
from astray.baselines.compared import CellRatio, Comparison
from astray.baselines.familiarity import FamiliarityRegression
from astray.baselines.generators import CellTransformer, MixtureSequenceAutoencoder

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
    "cell-counts": CellCounts,
    "cell-trigram": CellTrigram,
    "length": TripLength,
}
"""Every baseline by its short name; call with ``interval`` and ``seed``, or with nothing."""

COMPARISONS: dict[str, Callable[..., Comparison]] = {
    "familiarity": FamiliarityRegression,
    "cell-ratio": CellRatio,
    "trigram-ratio": partial(CellRatio, order=3),
    "lm-tad": CellTransformer,
    "gm-vsae": MixtureSequenceAutoencoder,
}
"""Those that get other people's trips, too: ``fit(train, population)``. The last two can do without."""

__all__ = [
    "BASELINES",
    "COMPARISONS",
    "LOF",
    "Baseline",
    "CellCounts",
    "CellRatio",
    "CellTransformer",
    "CellTrigram",
    "Comparison",
    "FNNAutoencoder",
    "FamiliarityRegression",
    "IsolationForest",
    "KNNLocation",
    "LSTMAutoencoder",
    "MixtureSequenceAutoencoder",
    "OneClassSVM",
    "StepScores",
    "Training",
    "TripLength",
]
