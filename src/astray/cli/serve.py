"""``astray serve``: runs the service; ``astray serve backup`` copies its store, ``astray serve token`` makes tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import say, tell
from astray.cli.serve_token import tokens
from astray.core.extras import require_extra
from astray.core.settings import Remarks, Serving, Settings

Folder = Annotated[Path, Argument(metavar="FOLDER", help="The folder for all data of the service; made if missing.")]


@o.with_settings(Serving, Remarks)
def command(
    settings: Settings,
    folder: Folder,
    model: Annotated[
        Path | None,
        Option(
            "--model",
            metavar="MODEL",
            help="Start with this fleet, which astray fit wrote. By default the service starts without agents, and "
            "learns each one from its first fix on.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the service: it receives fixes, raises alerts, and has a page to review trips.

    Fixes come over HTTP from OwnTracks, Overland, Traccar, OsmAnd, GPSLogger or as plain JSON, or from an MQTT broker.
    The service scores each fix when it comes. If a trip is not normal for its agent, it raises an alert and puts the
    trip into the review queue; it learns normal trips when they are over, and it learns from your verdicts. Open the
    address that it prints to see the page. Everything is in the folder: killed and started again, the service continues
    where it was.

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
    """Copy the store of a service to a new file, as it is at one moment; the service may keep running.

    To restore the copy, put it into an empty folder as astray.db. To copy a PostgreSQL store, use pg_dump.

    [b]Example[/b]

      astray serve backup data backup.db
    """
    from astray.service.store.sqlite import NAME, copy_database

    copy_database(folder / NAME, target)


@o.with_settings("port", Remarks)
def demo(settings: Settings) -> None:
    """Try the service with simulated people, some of whom do something unusual within a minute.

    Open the address that it prints to see the page; Ctrl-C ends it. All data are in a temporary folder, which is
    removed at the end.

    [b]Example[/b]

      astray serve demo --port 8080
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
    """Raises an error that says what to install, if a package of the service is missing."""
    require_extra("serve", "the service", "httptools", "msgspec", "starlette", "uvicorn")
