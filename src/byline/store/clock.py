"""The database's clock, in the statement itself: milliseconds since the epoch."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from sqlalchemy import BigInteger, Engine, bindparam, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.functions import FunctionElement

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class now(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """Now by the database's clock, in milliseconds since the epoch. A worker's clock is never asked (P18)."""

    type = BigInteger()
    inherit_cache = True


@compiles(now, "sqlite")
def _(element: now, compiler: SQLCompiler, **options: object) -> str:
    # SQLite's clock ticks in milliseconds; unixepoch('subsec') would need 3.42.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


@compiles(now, "postgresql")
def _(element: now, compiler: SQLCompiler, **options: object) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(now, "mysql")
@compiles(now, "mariadb")
def _(element: now, compiler: SQLCompiler, **options: object) -> str:
    return "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)"


def replace_clock(engine: Engine, clock: Callable[[], float]) -> None:
    """Let `clock` (seconds since the epoch) be the engine's clock: for tests of what time does."""
    bound = bindparam(None, type_=BigInteger(), unique=True, callable_=lambda: round(clock() * 1000))

    def replace(element: object, **_: object) -> ClauseElement | None:
        return bound if isinstance(element, now) else None

    @lru_cache
    def with_clock(statement: ClauseElement) -> object:
        return visitors.replacement_traverse(statement, {}, replace)

    def bind_clock(
        _connection: object, statement: object, many: object, parameters: object, _options: object
    ) -> tuple[object, object, object]:
        return with_clock(statement) if isinstance(statement, ClauseElement) else statement, many, parameters

    event.listen(engine, "before_execute", bind_clock, retval=True)


def to_datetime(milliseconds: int) -> datetime:
    """Milliseconds since the epoch as a datetime in UTC, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def to_milliseconds(at: datetime) -> int:
    """A datetime as milliseconds since the epoch."""
    return (at - _EPOCH) // timedelta(milliseconds=1)
