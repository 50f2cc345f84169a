"""Runs jobs on a Dask cluster: checks its address, and reports when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, cast
from urllib.parse import urlsplit

from astray.core.errors import AstrayError
from astray.jobs.work import Workers

ANSWER_SECONDS = 10.0  # to wait for the scheduler's answer


class SchedulerLost(Exception):
    """Raised for a job whose result is lost with the scheduler."""


class Jobs(Executor):
    """An executor for a Dask client.

    The futures of Dask's own executor wait for ever if the scheduler is lost while a result is fetched.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Gives a job to any worker; its future fails with :class:`SchedulerLost` if the scheduler is lost."""
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
        """Waits for a job, and passes its outcome to its future."""
        result: asyncio.Future[Any] = asyncio.ensure_future(job.result())
        while not result.done() and self._connected():
            await asyncio.wait([result], timeout=ANSWER_SECONDS)
        result.cancel()  # if it is not done
        outcome = (await asyncio.gather(result, return_exceptions=True))[0]
        if not found.set_running_or_notify_cancel():
            return
        if not isinstance(outcome, BaseException):
            found.set_result(outcome)
        elif job.status == "error":  # the job itself raised it
            found.set_exception(outcome)
        else:
            found.set_exception(SchedulerLost(repr(outcome)))

    def _connected(self) -> bool:
        """Returns True if there is a connection, or one may be restored."""
        return self.client.status in ("running", "connecting")


def check_address(address: str) -> None:
    """Raises an AstrayError for an address where strangers could read the trips or run programs on the workers.

    Dask sends pickled objects. Over plain TCP it authenticates nobody, so whoever reaches the port can run programs.
    So the address must use TLS, or be on this machine.

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
        raise AstrayError("it is not the address of a scheduler", place=address, remedy=remedy)
    if parts.scheme == "tcp" and not _is_here(parts.hostname or ""):
        raise AstrayError(
            "it is neither on this machine nor encrypted: over plain tcp anybody who reaches it can read the trips and "
            "run programs",
            place=address,
            remedy="start the scheduler and the workers with certificates, and give tls://HOST:PORT",
        )


def _is_here(host: str) -> bool:
    """Returns True if a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def connected(address: str) -> Iterator[Workers]:
    """Connects to a scheduler and yields its workers, with an executor that gives them jobs.

    If a worker is lost, another one gets its job. If the scheduler is lost or does not answer, raises
    :class:`~astray.core.errors.AstrayError`.
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
        yield Workers(len(workers), Jobs(client))
    except (SchedulerLost, CommClosedError, KilledWorker, TimeoutError) as error:
        many = "workers were lost, each time with the same job, perhaps because memory ran out"
        raise AstrayError(
            many if isinstance(error, KilledWorker) else "the scheduler was lost",
            place=address,
            remedy="start it again, and run the same command: what was finished is kept",
        ) from error
    finally:
        client.close(timeout=2)
