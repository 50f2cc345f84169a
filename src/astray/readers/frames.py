"""Converts tables in memory (polars, pandas, pyarrow, GeoPandas, MovingPandas, trackintel) to polars.

This module imports only polars; it recognises the objects of the other libraries by their attributes.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from astray.core.errors import DataError
from astray.core.fixes import candidates
from astray.core.trajectory_inputs import as_polars

DEGREES = 4326
"""The EPSG code of longitude and latitude in degrees."""


def as_table(given: Any) -> pl.DataFrame:
    """Returns any of these objects as a polars data frame with a row per fix.

    The points of a GeoDataFrame (also trackintel's positionfixes) become lat and lon, converted to degrees.
    A Trajectory of MovingPandas keeps its id, also inside a TrajectoryCollection. A pandas index that has a name or
    holds date-times becomes a column.
    """
    if hasattr(given, "trajectories") and not hasattr(given, "columns"):
        return pl.concat([as_table(one) for one in given.trajectories], how="diagonal_relaxed")
    if hasattr(given, "df") and hasattr(given, "id"):
        return _labelled(as_table(given.df), trajectory=given.id, agent=getattr(given, "obj_id", None))
    if hasattr(given, "crs") and hasattr(given, "geometry"):
        return _from_points(given)
    if hasattr(given, "index") and hasattr(given, "reset_index"):
        return _from_pandas(given)
    return as_polars(given)


def _labelled(table: pl.DataFrame, **labels: object) -> pl.DataFrame:
    """Returns the table with one label for all rows, in place of columns that could have the same role."""
    for role, label in labels.items():
        if label is not None:
            names = table.columns
            table = table.drop([names[i] for i in candidates(names).get(role, [])])
            table = table.with_columns(pl.lit(str(label)).alias(role))
    return table


def _from_points(given: Any) -> pl.DataFrame:
    if given.crs is not None and not getattr(given.crs, "is_geographic", True):
        given = given.to_crs(DEGREES)
    points = given.geometry
    try:
        lon, lat = points.x.to_numpy(), points.y.to_numpy()
    except (ValueError, AttributeError) as error:
        remedy = "give one point per row (frame.explode, or the vertices of its lines)"
        raise DataError(f"the geometry is not points ({error})", remedy=remedy) from error
    table = _from_pandas(given.drop(columns=[points.name]))
    return table.with_columns(pl.Series("lat", lat), pl.Series("lon", lon))


def _from_pandas(given: Any) -> pl.DataFrame:
    index = given.index
    is_time = getattr(getattr(index, "dtype", None), "kind", "") == "M"
    if is_time and index.name is None:
        given = given.rename_axis("time")
    names = [name for name in given.index.names if name is not None]
    if names and not set(names) & set(given.columns):
        given = given.reset_index()
    try:
        return as_polars(given)
    except ImportError:  # pandas passes its tables through pyarrow, which may be missing
        return pl.DataFrame({str(name): pl.Series(given[name].to_numpy(), strict=False) for name in given.columns})
