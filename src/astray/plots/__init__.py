"""Draws pictures: a trip on its map over its normality in time, training curves, score histograms, an HTML page."""

from __future__ import annotations

from astray.plots.charts import history_figure, scores_figure
from astray.plots.html_page import explanation_page, save_page
from astray.plots.style import save_figure
from astray.plots.trip_picture import Known, explanation_figure, trips_figure

__all__ = [
    "Known",
    "explanation_figure",
    "explanation_page",
    "history_figure",
    "save_figure",
    "save_page",
    "scores_figure",
    "trips_figure",
]
