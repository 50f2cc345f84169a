"""``astray serve``: run the service; ``astray serve backup`` copies its store, ``astray serve token`` makes tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import say, tell
from astray.cli.serve_token import tokens
from astray.core.extras import require_extra
from astray.core.settings import Remarks, Serving, Settings

Folder = Annotated[
    Path, Argument(metavar="FOLDER", help="Where the service keeps everything; made if it is not there.")
]


@o.with_settings(Serving, Remarks)
def command(
    settings: Settings,
    folder: Folder,
    model: Annotated[
        Path | None,
        Option(
            "--model",
            metavar="MODEL",
            help="Begin with this fleet, which astray fit wrote. By default with nobody: agents are learned from their "
            "first fix on.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the service: feeds in, alerts, a queue of trips to review, a page.

    Fixes come over HTTP from OwnTracks, Overland, Traccar, OsmAnd, GPSLogger or as plain JSON, or from an MQTT broker.
    Each is scored when it comes. What is not normal for its agent raises an alert and waits in the review queue; what
    is normal is learned when the trip is over. A verdict teaches. Everything is in the folder; killed and started
    again it goes on where it was.

    [b]Examples[/b]

      astray serve data
      [dim]# with a model, and fixes from a broker[/dim]
      astray serve data --model fleet.astray --mqtt mqtt://localhost
      [dim]# a copy of everything, while it runs[/dim]
      astray serve backup data backup.db
      [dim]# a token for a telephone[/dim]
      astray serve token add data ana-phone --agent ana
    """
    needs_extra()
    from astray.service.startup import run

    run(folder, settings, model, lambda words: say(words, quiet=settings.quiet))


def backup(
    folder: Folder,
    target: Annotated[Path, Argument(metavar="FILE", help="The new file to copy the store to.", show_default=False)],
) -> None:
    """Copy the store of a service to a new file, as it is at one moment; the service may go on meanwhile.

    To restore it, put the file into an empty folder as astray.db. A PostgreSQL store is copied with pg_dump.
    """
    from astray.service.store.sqlite import NAME, copy_database

    copy_database(folder / NAME, target)


@o.with_settings("port", Remarks)
def demo(settings: Settings) -> None:
    """Try the service: simulated people, of whom some do something unusual within a minute.

    Nothing stays: what it keeps goes to a temporary folder, which is removed at the end.
    """
    needs_extra()
    import tempfile
    import threading

    from astray.service.demo_feed import play
    from astray.service.startup import run

    stopped = threading.Event()

    def begin(address: str) -> None:
        threading.Thread(target=play, args=(address, tell, stopped), name="demo", daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="astray-demo-") as folder:
        try:
            run(Path(folder), settings, None, tell, begin)
        finally:
            stopped.set()


FURTHER = {"backup": backup, "token": tokens, "demo": demo}


def needs_extra() -> None:
    """Refuses to start where a package of the service is missing, and says what to install."""
    require_extra("serve", "the service", "httptools", "msgspec", "starlette", "uvicorn")
