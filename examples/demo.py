"""The main job from start to end: simulate a city, watch one person, find the trips that went astray, draw them.

    python examples/demo.py --out demo

The table goes to standard output, progress to standard error, the pictures to the folder. It takes about a minute on
one core.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from astray import Explanation, IRLDetector
from astray.plots import explanation_figure, history_figure, save_figure, scores_figure
from astray.simulate import city


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; gives the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures (default: demo)")
    parser.add_argument("--people", type=int, default=12, help="how many people live in the city (default: 12)")
    parser.add_argument("--days", type=int, default=60, help="for how many days (default: 60)")
    parser.add_argument("--seed", type=int, default=7, help="which city (default: 7)")
    parser.add_argument("--iterations", type=int, default=None, help="of learning (default: the detector's own)")
    args = parser.parse_args(argv)

    say(f"simulating {args.people} people for {args.days} days")
    simulation = city(people=args.people, days=args.days, seed=args.seed)
    past, unseen = simulation.split(test_share=0.25)
    # Some of everybody's last trips go wrong: some are somebody else's, others lead astray, wait, speed, turn back.
    labelled = simulation.inject(unseen, rate=0.25, seed=args.seed)

    who = past.agents[0]
    mine, others, new = past.agent(who), past.without(who), labelled.agent(who)
    say(f"learning what is normal for {who} from {len(mine)} trips, against {len(others)} trips of others")
    detector = IRLDetector(seed=args.seed, iterations=args.iterations, progress=show_progress)
    detector.fit(mine, population=others)

    table = detector.score(new).with_columns(
        pl.Series("start", (new.columns["time"][new.offsets[:-1]] * 1e6).astype("int64")).cast(pl.Datetime("us")),
        pl.Series("truth", new.context["kind"]),
    )
    astray = table.filter(pl.col("decision") != "normal").sort("score")
    explanations = {name: detector.explain(new, name) for name in astray["trajectory"]}
    print(report(who, len(mine), table, explanations))

    args.out.mkdir(parents=True, exist_ok=True)
    print(f"\nPictures in {args.out}/:")
    for name in draw(args.out, detector, table, explanations):
        print(f"  {name}")
    return 0


def report(who: str, n_past: int, table: pl.DataFrame, explanations: Mapping[str, Explanation]) -> str:
    """The trips that went astray and those that were missed, as plain text, and how good that is."""
    found = pl.col("decision") != "normal"
    wrong = pl.col("truth") != ""
    lines = [
        f"{who}: {n_past} trips to learn from, {table.height} new ones, "
        f"{table.filter(wrong).height} of which are known to be wrong",
        "N(tau) is about 0 +- 1 for normal trips; a trip is astray if it, or its worst window, scores -2 or less",
        "",
        f"{'trip':<10}{'start (UTC)':<19}{'N(tau)':>7}{'worst':>7}{'+-':>6}{'p':>7}  {'decision':<10}truth",
    ]
    for row in table.filter(found).sort("score").iter_rows(named=True):
        lines.append(in_a_line(row))
        lines += in_words(explanations[row["trajectory"]])
    missed = table.filter(~found & wrong).sort("score")
    if missed.height:
        lines += ["", "Missed:", *(in_a_line(row) for row in missed.iter_rows(named=True))]
    right, called, all_wrong = (table.filter(w).height for w in (found & wrong, found, wrong))
    lines += [
        "",
        f"precision {share(right, called)}: of the trips called astray, so many really are",
        f"recall    {share(right, all_wrong)}: of the trips that are wrong, so many were found",
    ]
    return "\n".join(lines)


def in_a_line(row: Mapping[str, Any]) -> str:
    """One trip of the table."""
    scores = f"{row['normality']:>7.1f}{row['worst_window']:>7.1f}{row['uncertainty']:>6.1f}{row['p_value']:>7.3f}"
    truth = row["truth"] or "normal"
    return f"{row['trajectory']:<10}{row['start']:%a %d %b %H:%M}   {scores}  {row['decision']:<10}{truth}"


def in_words(explanation: Explanation) -> list[str]:
    """What is odd about the worst stretch of a trip, as lines."""
    if not explanation.segments:
        return []
    worst = min(explanation.segments, key=lambda s: s.normality * (s.end_time - s.start_time))
    start, end = (datetime.fromtimestamp(time, UTC) for time in (worst.start_time, worst.end_time))
    said = f"{start:%H:%M} to {end:%H:%M}: {worst.words}"
    return textwrap.wrap(said, 100, initial_indent=" " * 10, subsequent_indent=" " * 10)


def share(part: int, whole: int) -> str:
    """A share as figures.

    >>> share(3, 4), share(0, 0)
    ('0.75 (3 of 4)', '- (0 of 0)')
    """
    return f"{part / whole:.2f} ({part} of {whole})" if whole else f"- (0 of {whole})"


def draw(
    folder: Path,
    detector: IRLDetector,
    table: pl.DataFrame,
    explanations: Mapping[str, Explanation],
) -> list[str]:
    """Write the pictures: for each kind that was found the trip with the lowest score, learning, and scores."""
    figures: dict[str, Figure] = {}
    truth = dict(zip(table["trajectory"], table["truth"], strict=True))
    for name, explanation in explanations.items():  # the lowest score first
        picture = f"{truth[name] or 'false-alarm'}.png"
        if picture not in figures:
            figures[picture] = explanation_figure(explanation)
    figures["history.png"] = history_figure(detector.history_)
    figures["scores.png"] = scores_figure(
        table["score"], table["truth"].to_list(), eps=-2.0, name="score: the lower of N(τ) and the worst window"
    )
    for name, figure in figures.items():
        save_figure(figure, folder / name)
    return list(figures)


def say(words: str) -> None:
    """Progress, on standard error."""
    print(words, file=sys.stderr, flush=True)


def show_progress(iteration: int, iterations: int, measures: Mapping[str, float]) -> None:
    """Now and then while learning."""
    if iteration % 5 == 0 or iteration == iterations:
        say(f"  iteration {iteration} of at most {iterations}, loss {measures['loss']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
