"""A cluster of Dask's as an executor: where it may be, and what it says when it is lost."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from astray.errors import AstrayError

ANSWER_SECONDS = 10.0  # for which a scheduler is waited for


class Cluster(NamedTuple):
    """An executor that is connected to a scheduler, and how many workers that had at first."""

    executor: Executor
    n_workers: int


def check_address(address: str) -> None:
    """Refuse an address where trips, or the programs that workers run, could be read or sent by anybody.

    Dask sends pickled objects. Over plain TCP nobody proves who they are, and whoever reaches the port can run
    programs: so it must be TLS, or stay on this machine.

    >>> check_address("tls://scheduler.example:8786"), check_address("tcp://127.0.0.1:8786")
    (None, None)
    >>> check_address("tcp://10.0.0.7:8786")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.errors.AstrayError: tcp://10.0.0.7:8786: it is neither on this machine nor encrypted: ...
    """
    try:
        parts = urlsplit(address)
        whole = bool(parts.hostname and parts.port)
    except ValueError:
        whole = False
    if not whole or parts.scheme not in ("tls", "tcp"):
        remedy = "give one such as tls://host:8786, or tcp://127.0.0.1:8786 on this machine"
        raise AstrayError("it is no address of a scheduler", place=address, remedy=remedy)
    if parts.scheme == "tcp" and not _is_here(parts.hostname or ""):
        raise AstrayError(
            "it is neither on this machine nor encrypted: over plain tcp anybody who reaches it can read the trips and "
            "run programs",
            place=address,
            remedy="start the scheduler and the workers with certificates, and give tls://HOST:PORT",
        )


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """An executor whose jobs are done by the workers of a scheduler.

    A job whose worker is lost is given to another one. If the scheduler is lost, so are the jobs under way: then, and
    if there is none, :class:`~astray.errors.AstrayError` is raised.
    """
    check_address(address)
    try:
        import distributed
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError
    except ModuleNotFoundError as error:
        raise AstrayError("a cluster needs Dask distributed", remedy="pip install 'astray[cluster]'") from error
    encrypted, dask = address.startswith("tls://"), cast(Any, distributed)  # which has no types
    try:
        security = dask.Security(require_encryption=True) if encrypted else None
        client = dask.Client(address, security=security, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise AstrayError(
            f"no scheduler answers there ({str(error) or type(error).__name__})",
            place=address,
            remedy="start one with `dask scheduler`, "
            + ("and name the certificates in Dask's configuration" if encrypted else "or leave out the cluster"),
        ) from error
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            remedy = f"start some with `dask worker {address} --nthreads 1`"
            raise AstrayError("the scheduler has no workers", place=address, remedy=remedy)
        for worker in workers:
            check_address(worker)
        yield Cluster(client.get_executor(pure=False), len(workers))
    except (CancelledError, CommClosedError, KilledWorker, TimeoutError) as error:
        many = "workers were lost, each time with the same job, perhaps because memory ran out"
        raise AstrayError(
            many if isinstance(error, KilledWorker) else "the scheduler was lost",
            place=address,
            remedy="start it again, and run the same command: what was finished is kept",
        ) from error
    finally:
        client.close(timeout=2)
