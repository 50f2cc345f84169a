"""``astray demo``: shows the main job from start to end, with a simulated city."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o
from astray.cli.console import learning, progress, say, tell
from astray.core.settings import Settings

if TYPE_CHECKING:
    import polars as pl

    from astray.detector import Detector
    from astray.explain import Explanation

WIDTH = 79
CLOCKS = "UTC"
"""The time zone of the simulated city."""


@o.with_settings("iterations", "false_alarm_rate", "eps")
def command(
    settings: Settings,
    output: Annotated[
        Path, Option("--output", "--out", "-o", metavar="FOLDER", help="The folder for the pictures.")
    ] = Path("demo"),
    people: Annotated[int, Option("--people", min=2, help="How many people live in the city.")] = 12,
    days: Annotated[int, Option("--days", min=7, help="How many days to simulate.")] = 60,
    seed: Annotated[int, Option("--seed", min=0, help="The seed: another number makes another city.")] = 7,
) -> None:
    """Simulate a city, find the trips of one person that went astray, and draw them.

    A quarter of the person's last trips go wrong in known ways (somebody else's trip, a detour, loitering, ...), so
    the demo can print precision and recall. The table of found and missed trips, with the reasons in words, goes to
    standard output, and the pictures go to a folder. It takes about half a minute on one core.

    [b]Example[/b]

      astray demo -o demo
    """
    import polars as pl

    from astray.detector import Detector
    from astray.simulate import city

    say(f"simulating {people} people for {days} days", quiet=settings.quiet)
    simulation = city(people=people, days=days, seed=seed)
    past, unseen = simulation.split(test_share=0.25)
    labelled = simulation.inject(unseen, rate=0.25, seed=seed)

    who = past.agents[0]
    mine, others, new = past.agent(who), past.without(who), labelled.agent(who)
    what = f"learning what is normal for {who} from {len(mine)} trips, against {len(others)} trips of others"
    with learning(what, quiet=settings.quiet) as done:
        chosen = settings.given(["iterations", "false_alarm_rate", "eps"])
        detector = Detector(seed=seed, time_zone=CLOCKS, progress=done, **chosen).fit(mine, population=others)

    table = detector.score(new).with_columns(pl.Series("truth", new.context["kind"]))
    astray = table.filter(pl.col("decision") != "normal").sort("score")
    explanations = {name: detector.explain(new, name) for name in astray["trajectory"]}
    threshold, rule = rule_of(detector)
    tell(report(who, len(mine), rule, table, explanations))

    output.mkdir(parents=True, exist_ok=True)
    with progress("drawing", quiet=settings.quiet):
        names = draw(output, table, explanations, threshold)
    tell("\n".join([f"\nPictures in {output}/:", *(f"  {name}" for name in names)]))


def rule_of(detector: Detector) -> tuple[float, str]:
    """Returns the threshold of the score, and the rule in words."""
    from astray.explain.aspect_phrases import promise
    from astray.scoring.decisions import level, total_rate

    if isinstance(detector.eps, float):
        return detector.eps, f"a trip is astray if it scores {detector.eps:g} or less"
    rate = detector.false_alarm_rate
    at = level(total_rate(rate), detector.calibration_.normal)
    if isinstance(rate, Mapping):
        return at, f"a trip is astray if it is {promise(rate)}"
    return at, f"a trip is astray if at most {100 * rate:g} % of them score as low (p), here {at:.1f}"


def report(who: str, n_past: int, rule: str, table: pl.DataFrame, explanations: Mapping[str, Explanation]) -> str:
    """Returns the trips that went astray and those that were missed, as text, with precision and recall."""
    import polars as pl

    found = pl.col("decision") != "normal"
    wrong = pl.col("truth") != ""
    lines = [
        f"{who}: {n_past} trips to learn from, {table.height} new ones, "
        f"{table.filter(wrong).height} of which are known to be wrong",
        *textwrap.wrap(f"N(tau) is about 0 +- 1 for normal trips; {rule}", WIDTH),
        "",
        f"{'trip':<10}{f'start ({CLOCKS})':<17}{'N(tau)':>6}{'+-':>6}{'p':>7}  {'in':<7}{'decision':<9}truth",
    ]
    for row in table.filter(found).sort("score").iter_rows(named=True):
        lines.append(in_a_line(row))
        lines += in_words(explanations[row["trajectory"]])
    missed = table.filter(~found & wrong).sort("score")
    if missed.height:
        lines += ["", "Missed:", *(in_a_line(row) for row in missed.iter_rows(named=True))]
    lines.append("")
    right = table.filter(found & wrong).height
    for name, among, words in (
        ("precision", found, "the share of the trips called astray that really are"),
        ("recall   ", wrong, "the share of the wrong trips that were found"),
    ):
        n = table.filter(among).height
        lines.append(f"{name} {f'{right / n:.2f}' if n else '-'} ({right} of {n}): {words}")
    return "\n".join(lines)


def in_a_line(row: Mapping[str, Any]) -> str:
    """Formats a trip as a line of the table."""
    scores = f"{row['normality']:>6.1f}{row['uncertainty']:>6.1f}{row['p_value']:>7.3f}"
    truth = row["truth"] or "normal"
    words = f"{row['aspect'] or '':<7}{row['decision']:<9}{truth}"
    return f"{row['trajectory']:<10}{row['start']:%a %d %b %H:%M} {scores}  {words}"


def in_words(explanation: Explanation) -> list[str]:
    """Returns lines that say what is odd about a trip, and about its worst segment."""
    from astray.plots.trip_text import span

    parts = [explanation.why] if explanation.why else []
    if explanation.segments:
        worst = min(explanation.segments, key=lambda s: s.normality * (s.end_time - s.start_time))
        parts.append(f"{span(explanation, worst)}: {worst}")
    return [" " * 10 + line for words in parts for line in textwrap.wrap(words, WIDTH - 10)]


def draw(folder: Path, table: pl.DataFrame, explanations: Mapping[str, Explanation], level: float) -> list[str]:
    """Writes the pictures: a page of all trips, the trip with the lowest score of each kind, and all scores."""
    from astray.plots import explanation_figure, explanation_page, save_figure, save_page, scores_figure

    names = []
    if explanations:
        save_page(explanation_page(list(explanations.values())), folder / "astray.html")
        names.append("astray.html")
    figures = {}
    truth = dict(zip(table["trajectory"], table["truth"], strict=True))
    for name, explanation in explanations.items():  # the lowest score first
        picture = f"{truth[name] or 'false-alarm'}.png"
        if picture not in figures:
            figures[picture] = explanation_figure(explanation)
    figures["scores.png"] = scores_figure(table["score"], table["truth"].to_list(), eps=level, name="score: N(τ)")
    for name, figure in figures.items():
        save_figure(figure, folder / name)
    return names + list(figures)
