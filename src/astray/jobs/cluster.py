"""A cluster of Dask's as an executor: where it may be, and what it says when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from astray.core.errors import AstrayError

ANSWER_SECONDS = 10.0  # for which a scheduler is waited for


class Cluster(NamedTuple):
    """An executor that is connected to a scheduler, and how many workers that had at first."""

    executor: Executor
    n_workers: int


class SchedulerLost(Exception):
    """A job whose result does not come any more."""


class Jobs(Executor):
    """An executor of a client's.

    Dask has one of its own, whose future waits for ever if the scheduler is lost while its result is fetched.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A job for any worker; its future fails with :class:`SchedulerLost` if nobody can say any more how it went."""
        found: Future[Any] = Future()
        try:
            job = self.client.submit(fn, *args, pure=False, **kwargs)
            self.client.loop.add_callback(self._pass_on, job, found)
        except Exception as error:
            if self._connected():
                raise
            raise SchedulerLost from error
        return found

    async def _pass_on(self, job: Any, found: Future[Any]) -> None:
        """Wait for a job, and let its future know."""
        result: asyncio.Future[Any] = asyncio.ensure_future(job.result())
        while not result.done() and self._connected():
            await asyncio.wait([result], timeout=ANSWER_SECONDS)
        result.cancel()  # if it is not done
        outcome = (await asyncio.gather(result, return_exceptions=True))[0]
        if not found.set_running_or_notify_cancel():
            return
        if not isinstance(outcome, BaseException):
            found.set_result(outcome)
        elif job.status == "error":  # in the job itself
            found.set_exception(outcome)
        else:
            found.set_exception(SchedulerLost(repr(outcome)))

    def _connected(self) -> bool:
        """Whether there is a connection, or one may come back."""
        return self.client.status in ("running", "connecting")


def check_address(address: str) -> None:
    """Refuse an address where trips, or the programs that workers run, could be read or sent by anybody.

    Dask sends pickled objects. Over plain TCP nobody proves who they are, and whoever reaches the port can run
    programs: so it must be TLS, or stay on this machine.

    >>> check_address("tls://scheduler.example:8786"), check_address("tcp://127.0.0.1:8786")
    (None, None)
    >>> check_address("tcp://10.0.0.7:8786")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.core.errors.AstrayError: tcp://10.0.0.7:8786: it is neither on this machine nor encrypted: ...
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
    if there is none, :class:`~astray.core.errors.AstrayError` is raised.
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
        yield Cluster(Jobs(client), len(workers))
    except (SchedulerLost, CommClosedError, KilledWorker, TimeoutError) as error:
        many = "workers were lost, each time with the same job, perhaps because memory ran out"
        raise AstrayError(
            many if isinstance(error, KilledWorker) else "the scheduler was lost",
            place=address,
            remedy="start it again, and run the same command: what was finished is kept",
        ) from error
    finally:
        client.close(timeout=2)
