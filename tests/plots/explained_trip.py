"""Makes the explanation of an invented trip, which the tests of pictures and of the page draw."""

from __future__ import annotations

import numpy as np

from astray.explain import ExplainedSegment, Explanation, Reason

START = 1_740_000_000.0  # Wed 19 Feb 2025, 21:20 UTC
NEVER = "never ended here before (0 of 304 past trips)"
CAME = "0 of 304 past trips came through this street"


def a_trip(name: str = "t7", score: float = -3.1) -> Explanation:
    """Returns a trip of forty fixes eastwards, a minute apart; fixes 10 to 19 are not normal, fix 30 is faulty."""
    n = 40
    time = START + 60.0 * np.arange(n)
    lat, lon = np.full(n, 41.15), -8.61 + 0.002 * np.arange(n)
    normality = np.where((np.arange(n) >= 10) & (np.arange(n) < 20), -3.0, 0.5)
    uncertainty = np.full(n, 0.2)
    passed = np.where(normality < 0, 0.0, 40.0)
    fault = np.full(n, "", dtype="U20")
    fault[30], normality[30], uncertainty[30], passed[30] = "impossible speed", np.nan, np.nan, np.nan
    segment = ExplainedSegment(10, 20, time[10], time[19], -3.0, 0.2, "place", CAME)
    return Explanation(
        agent="ann",
        trajectory=name,
        time=time,
        lat=lat,
        lon=lon,
        normality=normality,
        uncertainty=uncertainty,
        lo=normality - 0.4,
        hi=normality + 0.4,
        fault=fault,
        segments=(segment,),
        trip_normality=score,
        trip_uncertainty=0.2,
        score=score,
        aspect="place",
        p_value=0.04,
        history=304.0,
        decision="anomaly",
        eps=-2.0,
        gamma=1.5,
        leave=-1.0,
        passed=passed,
        habitual=((lat + 0.001, lon), (lat - 0.002, lon)),
        expected=((lat[9:20] + 0.003, lon[9:20]), (lat[9:15] - 0.003, lon[9:15])),
        reasons=(Reason(NEVER, 1.9, "end"), Reason("25 % of the way is new", 0.8, "place")),
    )
