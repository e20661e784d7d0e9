"""COMMITs that fail, and COMMITs whose answer is lost, on any database."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from sqlalchemy import PoolProxiedConnection

from byline.store.protocol import RunStore
from byline.store.sql import SqlStore
from byline.testing.conformance import StoreCase


class BrokenCommits(StoreCase):
    """The part of a store's case that is the same wherever the store is."""

    def commit_fails(self, store: RunStore, times: int) -> AbstractContextManager[object]:
        return _commit(sql(store), times, before=True)

    def answer_is_lost(self, store: RunStore, times: int) -> AbstractContextManager[object]:
        return _commit(sql(store), times, before=False)


@contextmanager
def _commit(store: SqlStore, times: int, *, before: bool) -> Generator[None]:
    dialect = store.engine.dialect
    commit = dialect.do_commit
    left = times

    def broken(connection: PoolProxiedConnection) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not before:
            commit(connection)
        if left >= 0:
            raise dialect.loaded_dbapi.OperationalError("the connection was closed")

    with mock.patch.object(dialect, "do_commit", broken):
        yield
    assert left < times, "nothing was committed"


def sql(store: RunStore) -> SqlStore:
    assert isinstance(store, SqlStore)
    return store
