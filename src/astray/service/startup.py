"""Starts the service from its settings, and stops it."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from astray.core.errors import AstrayError
from astray.core.settings import Settings
from astray.service import served_model
from astray.service.access import tokens as access
from astray.service.access.client_limits import ClientLimits, bounded
from astray.service.access.guard import Standing
from astray.service.alerts.outbox import Outbox
from astray.service.alerts.outlets import Means
from astray.service.feeds.mqtt_feed import MqttFeed
from astray.service.scoring.scorer import Limits
from astray.service.service import Service
from astray.service.store import open_store
from astray.service.web.app import application

GRACE = 5  # seconds for open requests when the service stops

Say = Callable[[str], None]


def run(folder: Path, settings: Settings, model: Path | None, say: Say, ready: Say = lambda address: None) -> None:
    """Runs the service until a signal stops it; calls ``ready`` with its address just before it answers."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    given = settings.tokens or ()
    tls = settings.certificate is not None
    with ExitStack() as stack:
        store = open_store(folder, settings.store)
        stack.callback(store.close)
        known = len(access.known(store.writer)) + len(given)
        access.check_binding(settings.host, tls=tls, behind_proxy=settings.behind_proxy, tokens=known)
        listening = _listening(settings.host, settings.port)
        stack.callback(listening.close)
        with store.writer.transaction():
            served_model.begin(store.writer, model)
        host, port = listening.getsockname()[:2]
        address = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        service = Service(
            store,
            limits=Limits(agents=settings.known_agents, held=1_000_000 * settings.memory),
            address=settings.address or address,
            refresh_hours=settings.refresh,
        )
        service.start()
        stack.callback(service.stop)
        outbox = Outbox(store, service.write, Means(settings.smtp, settings.mqtt, settings.webhook_key))
        outbox.start()
        stack.callback(outbox.stop)
        if settings.mqtt is not None:
            feed = MqttFeed(settings.mqtt, service.submit)
            feed.start()
            stack.callback(feed.stop)
            service.broker = feed.status
        proxy = settings.behind_proxy
        limits = ClientLimits()
        if proxy:  # all clients have the proxy's address
            limits = replace(limits, connections_each=limits.connections)
        standing = Standing(settings.host, settings.host_names or (), tls or proxy, proxy)
        app = application(service, folder, standing=standing, limits=limits, given=given)
        config = uvicorn.Config(
            app,
            http=bounded(limits),
            access_log=False,
            log_level="warning",
            lifespan="off",
            proxy_headers=proxy,
            server_header=False,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            timeout_graceful_shutdown=GRACE,
        )
        gc.collect()
        gc.freeze()  # modules and model stay for ever, and to examine them again and again would delay fixes
        say(f"astray serve: {address}/ (Ctrl-C ends it)")
        server = _Server(config)
        server.before_end = service.hub.close
        service.on_end = lambda: setattr(server, "should_exit", True)
        ready(address)
        server.run([listening])


class _Server(uvicorn.Server):
    """Stops cleanly on a signal; uvicorn's server would wait for open pages, and raise the signal again."""

    before_end: Callable[[], object] = staticmethod(lambda: None)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop, on a signal."""
        self.before_end()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles SIGINT and SIGTERM while the server runs."""
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise AstrayError(
            f"cannot listen on {host}, port {port} ({error.strerror or error})", remedy="give another --port or --host"
        ) from error
    listening.set_inheritable(True)
    return listening
