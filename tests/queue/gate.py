"""Where the processes of workers are held: at a tool's write or in a listener, until the test lets them go."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from byline import AfterAiRecordWrittenEvent, AgentRuntime, ToolContext
from tests.host import Host

PATIENCE = 30.0
"""Seconds that a worker may take to get somewhere: it is started, and the machine may have more to do."""


class Held:
    """A process that waits at a point."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self.point, pid = wire.recv(200).decode().split()
        self.pid = int(pid)

    def go_on(self) -> None:
        self._wire.sendall(b"now")

    def go_on_when_stopping(self) -> None:
        """Let it go once its runtime has been told to close."""
        self._wire.sendall(b"stopping")

    def close(self) -> None:
        self._wire.close()


class Gate:
    """The test's end."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(PATIENCE)
        self._held: list[Held] = []

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    async def reached(self) -> Held:
        """Wait until a process is held."""
        wire, _ = await asyncio.to_thread(self._server.accept)
        wire.settimeout(PATIENCE)
        self._held.append(Held(wire))
        return self._held[-1]

    def close(self) -> None:
        for held in self._held:
            held.close()
        self._server.close()


class GatedHost(Host):
    """The host of a worker's process, which is held at the points that are watched."""

    def __init__(self, path: Path, port: int, watched: str) -> None:
        super().__init__(path)
        self._port = port
        self._watched = watched.split()
        self.stopping: Callable[[], bool] = lambda: False

    def count(self, context: ToolContext, name: str) -> None:
        super().count(context, name)
        self._reach(name)

    def listen(self, event: AfterAiRecordWrittenEvent) -> None:
        super().listen(event)
        self._reach("told")

    def know(self, runtime: AgentRuntime) -> AgentRuntime:
        """Know the runtime, so that it can be waited for that it closes."""

        def stopping() -> bool:
            return (here := runtime._opened) is None or here.closing.is_set()

        self.stopping = stopping
        return runtime

    def _reach(self, point: str) -> None:
        if point not in self._watched:
            return
        with socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE) as wire:
            wire.sendall(f"{point} {os.getpid()}".encode())
            said = wire.recv(20)
        given_up = time.monotonic() + PATIENCE / 5
        while said == b"stopping" and not self.stopping() and time.monotonic() < given_up:
            time.sleep(0.005)  # its asyncio.Event can be waited for on its own loop only
