"""``astray serve token``: makes, lists and removes the tokens by which the service knows senders and people."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from astray.cli.console import say, tell

if TYPE_CHECKING:
    from astray.service.store import Connection

tokens = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    help="Make, list and remove the tokens by which the service knows senders and people. A running service notices "
    "changes within seconds.",
)

Folder = Annotated[Path, Argument(metavar="FOLDER", help="The folder of the service.", show_default=False)]
StoreUrl = Annotated[
    str | None,
    Option(
        "--store", metavar="URL", help="The store of the service, if that is a PostgreSQL database.", show_default=False
    ),
]
Name = Annotated[str, Argument(metavar="NAME", help="The name of the token, such as ana-phone.", show_default=False)]


@tokens.command()
def add(
    folder: Folder,
    name: Name,
    agent: Annotated[
        list[str] | None,
        Option("--agent", metavar="NAME", help="Allow only this agent. May be repeated.", show_default=False),
    ] = None,
    send: Annotated[
        bool, Option("--send", help="Allow sending fixes; the default if no other right is given.")
    ] = False,
    read: Annotated[bool, Option("--read", help="Allow seeing agents, trips and alerts.")] = False,
    write: Annotated[
        bool, Option("--write", help="Allow judging trips, changing settings and erasing people; includes --read.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Make a token and print it. Copy it now: the store keeps only a digest, so it cannot be printed again.

    [b]Examples[/b]

      [dim]# for a telephone that sends the fixes of one person[/dim]
      astray serve token add data ana-phone --agent ana/phone
      [dim]# for somebody who works with the page[/dim]
      astray serve token add data operator --write
    """
    from astray.service.access import tokens as access

    rights = [right for right, given in (("send", send), ("read", read or write), ("write", write)) if given]
    with closing(_opened(folder, store)) as connection:
        tell(access.add(connection, name, rights or ["send"], agent or None))


@tokens.command(name="list")
def list_(folder: Folder, store: StoreUrl = None) -> None:
    """List the names of the tokens, what they allow, and for which agents. The tokens themselves are not stored.

    [b]Example[/b]

      astray serve token list data
    """
    from astray.core.times import moment
    from astray.service.access import tokens as access

    with closing(_opened(folder, store)) as connection:
        known = access.known(connection)
    for token in known:
        whose = "all agents" if token.scope.agents is None else ", ".join(token.scope.agents)
        tell(f"{token.name}: {', '.join(token.scope.rights)} for {whose}, made {moment(round(token.made))}")
    if not known:
        say("there is no token: everybody on this machine may do everything, and nobody elsewhere may do anything")


@tokens.command()
def remove(folder: Folder, name: Name, store: StoreUrl = None) -> None:
    """Remove a token, so that the service does not accept it any more.

    [b]Example[/b]

      astray serve token remove data ana-phone
    """
    from astray.service.access import tokens as access

    with closing(_opened(folder, store)) as connection:
        access.remove(connection, name)


def _opened(folder: Path, url: str | None) -> Connection:
    """Opens a connection to a store; a service may be running, because a token is one row, which is written safely."""
    from astray.core.errors import AstrayError, InUseError
    from astray.service.store import connect, open_store
    from astray.service.store.sqlite import NAME

    if url is None and not folder.is_dir():  # a token for a misspelt folder would let nobody in
        raise AstrayError("there is no such folder", place=folder, remedy="give the one that astray serve has made")
    with suppress(InUseError):  # a running service has made the store, and brought it up to date
        open_store(folder, url).close()
    return connect(url or folder / NAME, write=True)
