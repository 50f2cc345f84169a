"""``astray observe``: scores trips in the order of time, and learns from each one that is normal."""

from __future__ import annotations

import shlex
from collections import Counter

from astray.cli import options as o
from astray.cli.console import progress, say
from astray.core.settings import LocalTime, Reading, Settings
from astray.core.text import number_of


@o.with_settings("eps", "false_alarm_rate", Reading, LocalTime)
@o.changes_model
def command(
    settings: Settings,
    model: o.Model,
    file: o.Trips,
    output: o.Output = None,
    to: o.To = "csv",
    agent: o.OnlyAgent = None,
) -> None:
    """Score trips in the order of time, and learn from each one that is normal.

    Writes the table of astray score, with a column that says what became of each trip. The model scores a trip before
    it learns it. [b]learned[/b]: the trip is not flagged. [b]waiting[/b]: it is flagged, or not clearly normal while
    many trips are flagged. [b]refused[/b]: it is like a trip that proved to be somebody else's. [b]known[/b]: the model
    had learned it already. If several waiting trips are alike, the model asks whether they are a new habit or somebody
    else's; astray answer lists the questions, and takes your answers.

    [b]Examples[/b]

      astray observe me.astray today.csv
      astray observe fleet.astray today.parquet -o today-scores.csv
      [dim]# and then[/dim]
      astray answer me.astray
    """
    from astray.cli.inputs import Source, refuse_unknown
    from astray.core.writers import table_writer
    from astray.detector import load

    detector = load(model)
    kept = {name: getattr(detector, name) for name in ("eps", "false_alarm_rate")}
    chosen = settings.given(list(kept))
    detector.set_params(**({"eps": None, **chosen} if "false_alarm_rate" in chosen else chosen))
    source = Source.of(file, settings, detector, agent)
    source.keep_from(output, model)
    trips = source.load()
    source.say_left_out()
    refuse_unknown(detector, trips)
    with progress(f"observing {source.name}", quiet=settings.quiet):
        observed = detector.observe(trips)
    detector.set_params(**kept)
    # The model is saved first, because the table says what it has learned.
    detector.save(model)
    with table_writer(output, to) as write:
        write(observed.table, None)
    became = Counter(observed.table["became"].to_list())
    said = [f"{number_of(len(trips), 'trip')}: " + ", ".join(f"{n:,} {what}" for what, n in became.items())]
    said += [*observed.drift, *(f"{q} {', '.join(map(str, q.trips))}" for q in observed.questions)]
    for question in observed.questions[:1]:
        one = shlex.quote(str(question.trips[0]))
        said.append(f"answer by: astray answer MODEL {one} --mine (or --not-mine)")
    say("\n".join(said), quiet=settings.quiet)
