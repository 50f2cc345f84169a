"""The paper's printed figures (Oh and Iyengar, KDD 2019), to compare with ours: recall, precision, F1.

Table 1 has the averages over ten GeoLife users at the 10 % rate, and the figures for Porto (TST); Tables 2 and 3 list
GeoLife by user. The paper does not identify its ten users, so its U1 to U10 cannot be matched with ours.
``printed.toml`` holds the numbers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from astray_benchmark.protocols import Setting


class Printed(NamedTuple):
    """Recall, precision and F1 as printed."""

    recall: float
    precision: float
    f1: float


PAPER_NAMES = {
    "lof": "LOF",
    "ocsvm": "One-class SVM",
    "fnn-ae": "FNN-AE",
    "lstm-ae": "LSTM-AE",
    "astray": "IRL-AD",
    "kdd19": "IRL-AD",
    "astray + uncertainty": "IRL-ADU",
    "kdd19 + uncertainty": "IRL-ADU",
}
"""Our methods, each with the row of the paper's tables to compare it with."""

_DATA = tomllib.loads(files(__package__).joinpath("printed.toml").read_text("utf-8"))

GEOLIFE = {
    float(rate): {name: Printed(*row) for name, row in found["averages"].items()}
    for rate, found in _DATA["geolife"].items()
}
"""The averages over ten users, by the rate of anomalies (Table 1, and the last rows of Tables 2 and 3)."""

GEOLIFE_USERS = {
    float(rate): {name: tuple(Printed(*row) for row in rows) for name, rows in found["users"].items()}
    for rate, found in _DATA["geolife"].items()
}
"""U1 to U10 of each method, by the rate of anomalies (Tables 2 and 3)."""

PORTO = {name: Printed(*row) for name, row in _DATA["porto"].items()}
"""One pooled model of the taxis (Table 1, TST)."""


def beside(dataset: str, setting: Setting | None) -> Mapping[str, Printed]:
    """Returns the paper's figures to compare with a setting, by the paper's names; empty if there are none."""
    if setting is None:
        return {}
    if dataset == "geolife" and setting.family == "person":
        return GEOLIFE.get(setting.rate, {})
    return PORTO if setting.reading == "cap" else {}
