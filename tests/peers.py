"""Stands in for the service's peers in tests: a broker that can be killed, a web server that keeps what is posted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Mosquitto:
    """A Mosquitto broker that a test can kill."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.settings = folder / "mosquitto.conf"
        self.settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\n"
            f"user {'root' if os.geteuid() == 0 else ''}\n"
        )

    def __enter__(self) -> Mosquitto:
        self.process = subprocess.Popen(
            ["mosquitto", "-c", str(self.settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: is_open(self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the broker as a shutdown of its machine would: it first writes its queues."""
        self.process.terminate()
        self.process.wait(10)


def publish(port: int, *messages: tuple[str, object], retain: bool = False, qos: int = 1) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, f"test-{uuid.uuid4().hex[:8]}")
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = [
        client.publish(topic, said if isinstance(said, bytes) else json.dumps(said).encode(), qos, retain)
        for topic, said in messages
    ]
    for one in sent:
        one.wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


class Receiver(ThreadingHTTPServer):
    """A web server that keeps what is posted, and gives the answers that a test has set."""

    daemon_threads = True

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.delay = 0.0
        super().__init__(("127.0.0.1", 0), Posted)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for _, headers, _ in self.got]


class Posted(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay)
        self.server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status, headers = self.server.answers.pop(0) if self.server.answers else (204, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
