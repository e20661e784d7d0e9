"""Database servers of a test's own, which it may stop and start again: never the shared one."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import OperationalError

PATIENCE = 30.0
"""Seconds that a server may take to answer, or to end."""

Backend = Literal["postgresql", "mariadb"]


class OwnServer:
    """A server in a folder of its own, with a socket there or a port of its own.

    Attributes:
        url: its first database, as its superuser.
    """

    def __init__(self, folder: Path, user: str | None, command: Sequence[str], url: URL) -> None:
        self.url = url
        self._folder = folder
        self._user = user
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, user=self._user, cwd=self._folder)
        until = time.monotonic() + PATIENCE
        engine = create_engine(self.url)
        while True:
            try:
                with engine.connect():
                    break
            except OperationalError:
                assert self._process.poll() is None, (self._folder / "server.log").read_text("utf-8", "replace")
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.02)
        engine.dispose()

    def stop(self, *, crash: bool = False) -> None:
        """End it: as its administrator would, cutting every connection; or as a power failure would."""
        process, self._process = self._process, None
        if process is not None:
            # PostgreSQL's fast and immediate shutdown; MariaDB ends in good order at the first, and dies at the second.
            process.send_signal(self._crashes if crash else self._ends)
            process.wait(PATIENCE)

    @property
    def _ends(self) -> signal.Signals:
        return signal.SIGINT if self.url.get_backend_name() == "postgresql" else signal.SIGTERM

    @property
    def _crashes(self) -> signal.Signals:
        return signal.SIGQUIT if self.url.get_backend_name() == "postgresql" else signal.SIGKILL

    def restart(self, *, crash: bool = False, away: float = 0.0) -> None:
        """Stop it, leave it away for so many seconds, and start it again."""
        self.stop(crash=crash)
        time.sleep(away)
        self.start()


@contextmanager
def own_server(backend: Backend) -> Generator[OwnServer]:
    """A server that is not the shared one, gone afterwards. Skips where its programs are not installed."""
    found = _programs(backend)
    if found is None:
        pytest.skip(f"the {backend} server's own programs are not installed: no server can be stopped and started")
    makes, serves = found
    user = ("postgres" if backend == "postgresql" else "mysql") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="byline-server-"))  # short: a socket's path has 107 characters at most
    if user is not None:
        owner = pwd.getpwnam(user)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data = folder / "data"
    name = user or pwd.getpwuid(os.geteuid()).pw_name
    if backend == "postgresql":
        make = [makes, "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        serve = [serves, "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        serve += ["-c", "max_connections=300", "-c", "shared_buffers=32MB"]
        url = URL.create("postgresql+psycopg", "postgres", database="postgres", query={"host": str(folder)})
    else:
        here = [f"--datadir={data}", f"--socket={folder / 'my.sock'}", f"--user={name}"]
        make = [makes, "--no-defaults", here[0], here[2], "--auth-root-authentication-method=normal", "--skip-test-db"]
        # By TCP: PyMySQL leaves a socket file's connection open where nobody answers, which is a warning.
        port = _free_port()
        serve = [serves, "--no-defaults", *here, "--bind-address=127.0.0.1", f"--port={port}"]
        serve += [f"--pid-file={folder / 'my.pid'}", "--innodb-flush-log-at-trx-commit=2"]
        url = URL.create("mariadb+pymysql", "root", host="127.0.0.1", port=port, database="mysql")
    server = OwnServer(folder, user, serve, url)
    try:
        made = subprocess.run(make, user=user, cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        server.start()
        yield server
    finally:
        server.stop(crash=True)
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _programs(backend: Backend) -> tuple[str, str] | None:
    """What makes a server's folder, and what serves it."""
    if backend == "postgresql":
        newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda programs: int(programs.parent.name))
        where = os.pathsep.join([*map(str, reversed(newest)), os.environ.get("PATH", "")])
        pair = (shutil.which("initdb", path=where), shutil.which("postgres", path=where))
    else:
        where = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
        pair = (shutil.which("mariadb-install-db", path=where), shutil.which("mariadbd", path=where))
    makes, serves = pair
    return None if makes is None or serves is None else (makes, serves)
