"""Simulates towns whose people have habits, and injects labelled anomalies into their trips.

>>> sim = city(people=3, days=14, seed=0)
>>> train, test = sim.split(test_share=0.25)
>>> labelled = sim.inject(test, kinds=("detour", "loiter"), rate=0.2, seed=1)
>>> sorted(set(labelled.context["kind"].tolist()))
['', 'detour', 'loiter']
"""

from __future__ import annotations

from astray.simulate.anomalies import KINDS
from astray.simulate.city_and_world import city, world
from astray.simulate.life_changes import Change
from astray.simulate.people import Person
from astray.simulate.places import Places
from astray.simulate.simulation import Simulation
from astray.simulate.streets import Streets
from astray.simulate.town import EPOCH
from astray.simulate.variety import Variety

ANOMALY_KINDS = tuple(KINDS)
"""The kinds of anomaly that :meth:`Simulation.inject` makes."""

__all__ = [
    "ANOMALY_KINDS",
    "EPOCH",
    "Change",
    "Person",
    "Places",
    "Simulation",
    "Streets",
    "Variety",
    "city",
    "world",
]
