"""What every detector can say of new trips, once it is fitted; chunk by chunk, so that memory stays flat."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, NotFittedError, UnknownAgentWarning, some_names
from astray.core.processes import cores
from astray.core.settings import check_parameters
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone, by_place, zones_of
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import Reward
from astray.model.configuration import explorer_names
from astray.model.files import FilePath, ModelFile, plain, write
from astray.model.parameters import Parameters, documented
from astray.model.parts import Packed, plain_threshold, restore_threshold
from astray.scoring.decisions import Bounds, Threshold, decide, level, threshold
from astray.scoring.normality import Calibration
from astray.scoring.scores import CHUNK_FIXES, AgentModel, Chunk, Scores, chunks, fix_table, trip_table

if TYPE_CHECKING:
    from astray.explain import Explanation
    from astray.runtime.session import Session

Array = NDArray[Any]
Floats = NDArray[np.float64]
Result = TypeVar("Result")

RENAMED = {"strays": "suspect"}
"""Parameters that model files hold under a former name."""


class Detector(Parameters, ABC):
    """What every detector does with new trips, once it is fitted; after scikit-learn's outlier detectors.

    A subclass says what the features of a chunk of trips are (:meth:`_featurize`), in which order it takes trips
    (:meth:`_order`), what it measures them on (:meth:`_calibrations`), how it explains one (:meth:`_explain`), and what
    its file holds (:meth:`_pack`).
    """

    KIND: ClassVar[str]
    UNSAVED: ClassVar[tuple[str, ...]] = ("progress",)  # parameters that no file can hold

    reward_: Reward

    # ---------------------------------------------------------------- parameters

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = documented(cls.__doc__ or "", cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters given to the constructor, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; thresholds, ``scaling`` and ``observing`` count at once, the others at the next fit."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise DataError(
                    f"{type(self).__name__} has no parameter {name!r}", remedy=f"give one of {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        values = ((f.name, repr(getattr(self, f.name)), repr(f.default)) for f in fields(self))
        return f"{type(self).__name__}({', '.join(f'{n}={value}' for n, value, usual in values if value != usual)})"

    # ---------------------------------------------------------------- for subclasses

    def _order(self, trips: Trajectories) -> Array | None:
        """The order in which trips are taken; None for theirs."""
        return None

    @abstractmethod
    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """The agents of these trips that the model does not know: there is no past trip to measure them by."""

    @abstractmethod
    def _check(self, trips: Trajectories) -> Trajectories:
        """The same trips, if they are of the kind that the detector knows."""

    @abstractmethod
    def _featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        """The features of a chunk of trips: of every fix, or of one about every interval."""

    @abstractmethod
    def _calibrations(self, trips: Trajectories) -> Sequence[Calibration]:
        """What the trips of a chunk are measured on: what ``chunk.scale`` counts into."""

    @abstractmethod
    def _explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        """Explains this one trip; ``scores`` are those of its every fix."""

    @abstractmethod
    def _pack(self) -> Packed:
        """What a file holds beside the parameters."""

    @abstractmethod
    def agent_model(self, agent: str, near: tuple[float, float] | None = None) -> AgentModel:
        """How one agent's GPS trips are seen and measured; for a stranger, around a place (lat, lon)."""

    @abstractmethod
    def _home(self, agent: str) -> Zone | None:
        """By which clocks an agent lives; None if it is not known."""

    @property
    def posterior_(self) -> RewardPosterior:
        """The heads that reward steps, as arrays."""
        self._require_fitted()
        return self.reward_.step

    @property
    def training_history_(self) -> pl.DataFrame:
        """How the reward was learned, the last time: a table with one row an iteration; empty if that is not known."""
        self._require_fitted()
        return self.reward_.history

    def _eps(self) -> Threshold | None:
        """The threshold that decides; None: the rate of false alarms does."""
        return self.eps

    def _level(self, trip: Trajectories, calibration: Calibration) -> float:
        """The threshold of one trip that is measured on a calibration."""
        eps = self._eps()
        return level(self.false_alarm_rate, calibration.normal) if eps is None else float(threshold(eps, trip)[0])

    # ---------------------------------------------------------------- fitted or not

    @property
    def _is_fitted(self) -> bool:
        return "reward_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted

    def _require_fitted(self) -> None:
        if not self._is_fitted:
            name = type(self).__name__
            raise NotFittedError(
                f"this {name} has not been fitted", remedy="call fit(trips) first, or astray.load(path)"
            )

    # ---------------------------------------------------------------- local time

    def zones(self, trips: Trajectories) -> list[Zone]:
        """The time zone that each trip is told in.

        That is ``time_zone``, if it is given; else the offset that the trip's file gives; else the zone where the
        agent's past trips were made, or for an agent without any the trip's own.
        """
        homes = {agent: home for agent in trips.agents if (home := self._home(agent)) is not None}
        return zones_of(trips, self._given_zone, homes)

    def zone(self, agent: str, near: tuple[float, float] | None = None) -> Zone:
        """The time zone that an agent's live trips are told in; for a stranger, that of a place (lat, lon)."""
        return self._given_zone or self._home(agent) or by_place(*(near or (0.0, 0.0)))

    @property
    def _given_zone(self) -> Zone | None:
        return None if self.time_zone is None else Zone.of(self.time_zone)

    # ---------------------------------------------------------------- scoring

    def open(self, agent: str = "", **settings: Any) -> Session:
        """One agent's live trip, scored fix by fix as it happens; the model is never changed by it.

        ``settings`` are those of :class:`astray.runtime.Session`: ``reorder``, ``stay``, ``eps``, ``gamma``, ...
        """
        from astray.runtime.session import Session

        return Session(self, agent, **settings)

    def _score(self, trips: Trajectories, every: bool = False) -> Scores:
        return Scores(trips, self._featurize(trips, every), self.reward_, self._calibrations(trips))

    def _map(
        self, trips: Trajectories, what: Callable[[Scores, Array], Result], every: bool = False
    ) -> list[tuple[Array, Result]]:
        """``what`` of the scores of each chunk and the positions of its trips, with these positions."""
        self._require_fitted()
        order = self._order(trips)
        ordered = trips if order is None else trips[order]
        position = np.arange(len(trips)) if order is None else order

        def of(chunk: slice) -> tuple[Array, Result]:
            with one_thread():
                return position[chunk], what(self._score(ordered[chunk], every), position[chunk])

        found = chunks(ordered.lengths, CHUNK_FIXES)
        threads = cores(self.n_jobs)
        if threads <= 1:
            return [of(chunk) for chunk in found]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(of, found))

    def _levels(
        self, trips: Trajectories, eps: Threshold | None, false_alarm_rate: float | None
    ) -> Callable[[Scores, Array], Floats]:
        """The thresholds of a chunk of trips, by their positions: one a trip."""
        if eps is not None and false_alarm_rate is not None:
            raise DataError(
                "eps and false_alarm_rate are each a threshold by itself", remedy="give one of them, not both"
            )
        by = eps if eps is not None or false_alarm_rate is not None else self._eps()
        if by is None:
            rate = self.false_alarm_rate if false_alarm_rate is None else false_alarm_rate
            return lambda scores, at: scores.levels(rate)
        given = threshold(by, trips)  # of all trips at once, as they were given
        return lambda scores, at: given[at]

    def _table(self, trips: Trajectories, eps: Threshold | None, false_alarm_rate: float | None) -> pl.DataFrame:
        levels = self._levels(trips, eps, false_alarm_rate)
        parts = self._map(trips, lambda scores, at: trip_table(scores, levels(scores, at)))
        if not parts:
            raise DataError("no trajectories were given", remedy="give at least one")
        position = pl.Series("position", np.concatenate([p for p, _ in parts]))
        return pl.concat([t for _, t in parts]).with_columns(position).sort("position").drop("position")

    def score_samples(self, trips: Trajectories) -> Floats:
        """The score that decides, one a trip; high is normal. A trip without a usable fix is not a number."""
        return self._scored(trips, lambda scores, _: scores.of_trips.score)

    def decision_function(self, trips: Trajectories) -> Floats:
        """How far each trip scores above its threshold."""
        levels = self._levels(trips, None, None)
        return self._scored(trips, lambda scores, at: scores.of_trips.score - levels(scores, at))

    def _scored(self, trips: Trajectories, what: Callable[[Scores, Array], Floats]) -> Floats:
        found = np.full(len(trips), np.nan)
        for position, values in self._map(trips, what):
            found[position] = values
        return found

    def predict(self, trips: Trajectories) -> NDArray[np.int64]:
        """+1 for normal trips, -1 for those that score low, however sure that is; see :meth:`decide`."""
        with np.errstate(invalid="ignore"):
            return np.where(self.decision_function(trips) <= 0.0, -1, 1)

    def decide(
        self,
        trips: Trajectories,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: float | None = None,
    ) -> NDArray[np.str_]:
        """``normal``, ``anomaly`` or ``review`` for each trip.

        A trip that scores low is an anomaly if the heads agree (uncertainty at most ``gamma``) and enough history
        (``min_history`` trips) stands behind it; otherwise it is for a person to look at.

        Parameters
        ----------
        trips
            New trips.
        eps, gamma
            Other thresholds than the detector's own: numbers, or functions of the trips
            (:class:`astray.scoring.decisions.ByHour`, :class:`astray.scoring.decisions.ByContext`, or one's own).
        false_alarm_rate
            Instead of ``eps``: call low what about this share of normal trips would be (by conformal p-values).
        """
        return self.score(trips, eps=eps, gamma=gamma, false_alarm_rate=false_alarm_rate)["decision"].to_numpy()

    def score(
        self,
        trips: Trajectories,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: float | None = None,
    ) -> pl.DataFrame:
        """A table with one row a trip.

        Columns: agent, trajectory, normality (N(tau), about 0 with spread 1 for normal trips), uncertainty (standard
        deviation over the heads, wider where the history is short), score (what decides: N(tau) or, for a reward that
        was learned from steps alone, the worst window if that is lower), p_value (conformal), aspect (which side of the
        trip speaks most against it: place, route, manner or time), decision, history (past trips behind the score),
        start (when the trip began), zone (the time zone that it is told in, see :meth:`zones`), and the segment in
        which the trip lost most normality: segment_start, segment_end, segment_normality (null if there is none).
        Date-times are in UTC; files of text have them in the zone, with the offset. States and actions have no start
        and no zone.

        Trips of an agent that the model does not know have no history and are for review, whatever they score; an
        :class:`~astray.core.errors.UnknownAgentWarning` names these agents.
        """
        table = self._table(trips, eps, false_alarm_rate)
        self._name_unknown(trips)
        decision = decide(
            (table["score"] <= table["level"]).to_numpy(),
            table["uncertainty"].to_numpy(),
            table["history"].to_numpy(),
            gamma=threshold(self.gamma if gamma is None else gamma, trips, "gamma"),
            min_history=self.min_history,
        )
        scores, when = ("normality", "uncertainty", "score", "p_value"), ("start", "zone") if trips.is_gps else ()
        return (
            table.with_columns(pl.Series("decision", decision), pl.col(*scores).fill_nan(None), *self._said(trips))
            .select("agent", "trajectory", *scores, "aspect", "decision", "history", *when, "^segment_.*$")
            .rechunk()
        )

    def _said(self, trips: Trajectories) -> list[pl.Series]:
        """The zones of trips as a column; none for states and actions."""
        return [pl.Series("zone", [str(zone) for zone in self.zones(trips)], pl.String)] if trips.is_gps else []

    def score_fixes(self, trips: Trajectories) -> pl.DataFrame:
        """A table with one row a fix.

        Columns: agent, trajectory, time, lat, lon (or step, for states and actions), normality (n(s, a)), uncertainty,
        lo and hi (two standard deviations over the heads either side), aspect (the side of it that is lowest),
        fault (what is wrong with a fix that the receiver got wrong, which has no scores, or an empty text), and zone,
        as in :meth:`score`.
        """
        parts = self._map(trips, lambda scores, _: fix_table(scores), every=True)
        if not parts:
            raise DataError("no trajectories were given", remedy="give at least one")
        table = pl.concat([t for _, t in parts])
        trip = np.concatenate([p for p, _ in parts])
        position = np.repeat(trip, trips.lengths[trip])
        table = table.with_columns(column.gather(position) for column in self._said(trips))
        if (np.diff(trip) > 0).all():
            return table.rechunk()
        order = pl.Series("position", position)
        return table.with_columns(order).sort("position", maintain_order=True).drop("position")

    def explain(
        self,
        trips: Trajectories,
        trajectory: TripId | str | int = 0,
        *,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: float | None = None,
    ) -> Explanation:
        """Why a trip scored as it did: its segments, in words, and where the agent would rather have gone.

        Parameters
        ----------
        trips
            Some trips.
        trajectory
            Which of them: its id, its name (``"agent/trajectory"``, or ``"trajectory"`` where only one agent has it) or
            its position; the first by default.
        eps, gamma, false_alarm_rate
            By what it is decided on, as in :meth:`decide`.

        Examples
        --------
        >>> from astray import IRLDetector
        >>> from astray.simulate import city
        >>> trips = city(people=2, days=10, seed=0).trips
        >>> mine, other = trips.agent("p00"), trips.agent("p01")
        >>> detector = IRLDetector(iterations=3, seed=0).fit(mine, population=other[:20])
        >>> explanation = detector.explain(other, "p01-0030")
        >>> print(explanation)  # doctest: +ELLIPSIS
        Trip p01-0030 of p01: ...
        >>> len(explanation.normality) == len(explanation.time), len(explanation.habitual) == len(mine)
        (True, True)
        """
        from astray.explain import position_of

        self._require_fitted()
        trip = self._check(trips)[position_of(trips, trajectory)]
        self._name_unknown(trip)
        with one_thread():
            scores = self._score(trip, every=True)
            low = self._levels(trip, eps, false_alarm_rate)(scores, np.array([0]))
            unsure = threshold(self.gamma if gamma is None else gamma, trip, "gamma")
            bounds = Bounds(float(low[0]), float(unsure[0]), float(self.min_history))
            explanation = self._explain(trip, scores, bounds)
        return replace(explanation, zone=self.zones(trip)[0]) if trip.is_gps else explanation

    def _name_unknown(self, trips: Trajectories) -> None:
        """Warn of trips of agents that the model does not know."""
        unknown = self.unknown_agents(trips)
        if unknown:
            said = f"the model does not know {some_names(unknown)}: such trips are for review"
            warnings.warn(said, UnknownAgentWarning, stacklevel=3)

    # ---------------------------------------------------------------- keeping

    def save(self, path: FilePath) -> None:
        """Write the model to one file, whole or not at all; :func:`astray.load` opens it again.

        The file is in the safetensors format, holds no code, and equal models give equal bytes. It grows with the trips
        that are remembered or kept, and is as private as they are. Functions given as parameters are not saved.
        """
        self._require_fitted()
        whole = self._values_and_arrays()
        write(path, self.KIND, whole.values, whole.arrays)

    @property
    def saved_parameters(self) -> dict[str, Any]:
        """The parameters as a file holds them: plain values, without those that no file can hold."""
        params = self.get_params() | dict.fromkeys(self.UNSAVED)
        params |= {name: plain_threshold(name, params[name]) for name in ("eps", "gamma") if params[name] is not None}
        if params.get("explorers") is not None:
            params["explorers"] = explorer_names(params["explorers"])
        saved: dict[str, Any] = plain(params)
        return saved

    def _values_and_arrays(self) -> Packed:
        """What a file holds: the parameters, and what was learned."""
        packed = self._pack()
        return Packed({"parameters": self.saved_parameters} | packed.values, packed.arrays)

    @classmethod
    def _of_parameters(cls, model: ModelFile, **changed: Any) -> Self:
        """A detector that is not fitted, with the parameters that a file holds."""
        inside = model.within("parameters")
        given = {RENAMED.get(name, name): value for name, value in inside.values.items()}
        thresholds = {
            name: restore_threshold(inside, name) for name in ("eps", "gamma") if inside.values.get(name) is not None
        }
        found = cls(**{**given, **thresholds, **changed})
        check_parameters(found)
        return found

    @staticmethod
    def _unpack_weights(model: ModelFile, reward: Reward) -> tuple[float, ...]:
        """How much each aspect counts."""
        weights: tuple[float, ...] = model.value("aspect_weights", tuple[float, ...])
        if len(weights) != len(reward.aspects) or min(weights, default=0.0) < 0 or not any(weights):
            raise model.wrong("its aspects and their weights do not fit together")
        return weights
