"""One round: processes at work, faults that strike them, and a look at what is left."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, create_engine, text

from byline.store.sql import SqlStore
from tests.crash.rounds.crew import Crew
from tests.crash.rounds.outcome import Outcome, Seen, is_at_rest, is_settled
from tests.crash.rounds.plan import WORKERS, Plan, Stint
from tests.crash.rounds.site import RoundSite
from tests.store.own import OwnServer, own_server
from tests.store.servers import upgraded
from tests.store.sqlite import KEYS

PATIENCE = 90.0
"""Seconds after which runs that are not at rest are not coming to rest."""
TEMPLATE = "byline_template"


class Grounds:
    """Where rounds are played: SQLite files, and databases on a server of its own that is started when it is needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: OwnServer | None = None
        self._made = 0

    def __enter__(self) -> "Grounds":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, plan: Plan, folder: Path) -> Outcome:
        """Play a round in an empty folder."""
        if plan.database == "sqlite":
            url = f"sqlite:///{folder / 'byline.db'}"
            store = SqlStore(url, keys=KEYS)
            store.open()
            store.close()
            return _play(plan, folder, url, None)
        with self.database() as (url, server):
            return _play(plan, folder, url, server)

    @contextmanager
    def database(self) -> Generator[tuple[str, OwnServer]]:
        """An empty store on the server: its URL, and the server."""
        server = self._server or self._begin()
        self._made += 1
        with _database(server, f"round_{self._made}") as url:
            yield url, server

    def _begin(self) -> OwnServer:
        self._server = server = self._stack.enter_context(own_server("postgresql"))
        _do(server.url, f"CREATE DATABASE {TEMPLATE}")
        upgraded(server.url.set(database=TEMPLATE))
        return server


def _play(plan: Plan, folder: Path, url: str, server: OwnServer | None) -> Outcome:
    site = RoundSite.made(folder, plan, url)
    outcome = Outcome()
    crew = Crew(site, server)
    for_people = _for_people(plan)
    with closing(SqlStore(url, keys=KEYS)) as store:
        store.open()
        try:
            crew.begin([stint for stint in plan.stints if stint not in for_people], WORKERS)
            rested = crew.until(lambda: crew.is_calm and is_at_rest(plan, store), PATIENCE)
            crew.end()
            seen = Seen(site, store)
            outcome.violations += seen.at_rest() if rested else [*seen.at_rest(), "the runs do not come to rest"]
            outcome.counts["uncertain"] += sum(run.status.value == "uncertain" for run in seen.runs.values())
            outcome.counts["dead letters"] += sum(run.status.value == "dead_letter" for run in seen.runs.values())
            site.settling.touch()
            if not is_settled(plan, store):
                crew.begin(for_people, WORKERS)
                crew.until(lambda: is_settled(plan, store), PATIENCE)
                crew.end()
        finally:
            crew.clear_away()
        seen = Seen(site, store)
        seen.count(outcome)
        outcome.violations += [wrong for wrong in (*seen.settled(), *crew.wrong) if wrong not in outcome.violations]
    outcome.struck = crew.struck
    outcome.counts += crew.started
    outcome.counts["planned strikes"] += sum(len(stint.strikes) for stint in plan.stints)
    return outcome


def _for_people(plan: Plan) -> list[Stint]:
    """The planned stints that strike where uncertain calls are settled: nobody is only stopped then."""
    return [stint for stint in plan.stints if any("reconcile" in strike.point for strike in stint.strikes)]


@contextmanager
def _database(server: OwnServer, name: str) -> Generator[str]:
    _do(server.url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    try:
        yield server.url.set(database=name).render_as_string(hide_password=False)
    finally:
        _do(server.url, f"DROP DATABASE {name} WITH (FORCE)")


def _do(url: URL, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@contextmanager
def a_folder() -> Generator[Path]:
    """A folder for a round. It is kept where a `KEEP` file was put into it."""
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - mkdtemp makes a private one in it
    folder = Path(tempfile.mkdtemp(prefix="byline-round-", dir=where))
    yield folder
    if not (folder / "KEEP").exists():
        shutil.rmtree(folder)
