"""The detectors to compare astray with, behind one interface.

>>> sorted(BASELINES)  # doctest: +ELLIPSIS
['cell-counts', 'cell-trigram', 'fnn-ae', 'iforest', ...]
>>> BASELINES["lof"](seed=1)
LOF(interval=30.0, seed=1, location=False)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from astray_benchmark.baselines.autoencoders import FNNAutoencoder, LSTMAutoencoder, Training
from astray_benchmark.baselines.baseline import Baseline, StepScores
from astray_benchmark.baselines.cells import CellCounts, CellTrigram, TripLength
from astray_benchmark.baselines.classic import LOF, IsolationForest, KNNLocation, OneClassSVM
from astray_benchmark.baselines.comparisons import CellRatio, Comparison
from astray_benchmark.baselines.familiarity import FamiliarityRegression
from astray_benchmark.baselines.generators import CellGenerator, CellTransformer, MixtureSequenceAutoencoder
from astray_benchmark.baselines.trip_outliers import FamiliarityOutlier, TripOutlier

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
    "pyod-ecod": TripOutlier,
    "pyod-knn": partial(TripOutlier, kind="knn"),
}
"""Every baseline by its short name; both arguments, ``interval`` and ``seed``, have defaults."""

COMPARISONS: dict[str, Callable[..., Comparison]] = {
    "familiarity": FamiliarityRegression,
    "cell-ratio": CellRatio,
    "trigram-ratio": partial(CellRatio, order=3),
    "pyod-ecod-familiarity": FamiliarityOutlier,
    "pyod-knn-familiarity": partial(FamiliarityOutlier, kind="knn"),
}
"""Baselines that also need other people's trips: ``fit(train, population)``."""

GENERATORS: dict[str, Callable[..., CellGenerator]] = {
    "lm-tad": CellTransformer,
    "lm-tad-alone": partial(CellTransformer, alone=True),
    "gm-vsae": MixtureSequenceAutoencoder,
    "gm-vsae-alone": partial(MixtureSequenceAutoencoder, alone=True),
}
"""Baselines that first learn from other people's trips if there are any; not those with ``-alone`` in their names."""

__all__ = [
    "BASELINES",
    "COMPARISONS",
    "GENERATORS",
    "LOF",
    "Baseline",
    "CellCounts",
    "CellGenerator",
    "CellRatio",
    "CellTransformer",
    "CellTrigram",
    "Comparison",
    "FNNAutoencoder",
    "FamiliarityOutlier",
    "FamiliarityRegression",
    "IsolationForest",
    "KNNLocation",
    "LSTMAutoencoder",
    "MixtureSequenceAutoencoder",
    "OneClassSVM",
    "StepScores",
    "Training",
    "TripLength",
    "TripOutlier",
]
