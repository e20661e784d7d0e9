"""`byline writes`: which records did an AI write, in which run?"""

from typing import Annotated

import typer

from byline.cli.ages import moment
from byline.cli.application import load
from byline.cli.as_json import print_json, write_json
from byline.cli.failing import UsageRefused
from byline.cli.options import AsJson, Limit
from byline.cli.screen import Column, Screen, local
from byline.records import RecordReference

COLUMNS = (Column("AT"), Column("RECORD", flexible=True), Column("KIND"), Column("RUN"))


def writes(
    context: typer.Context,
    record: Annotated[str | None, typer.Argument(help="Only this record, such as pages:42.")] = None,
    table: Annotated[str | None, typer.Option(help="Only records of this table, such as pages.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="A date, a time (ISO 8601), or how long ago: 24h, 7d.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on behind this cursor of an earlier answer.")
    ] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List announced writes, the oldest first. A reader that keeps the last cursor never misses one."""
    if record is not None and table is not None:
        raise UsageRefused("a RECORD or a --table, not both")
    reference = None if record is None else RecordReference.parse(record)
    start = None if since is None else moment(since)
    application = load(context)
    with application.opened() as runtime:
        if reference is None:
            found = runtime.writes(after=after, table=table, since=start, limit=limit)
        else:  # the store takes a record together with a cursor and a time
            store = application.runtime.store
            found = store.writes(after=after, table=None, record=reference, since=start, limit=limit)
    if as_json:
        for fact in found:
            print_json(write_json(fact))
        return
    screen = Screen()
    if not found:
        screen.say("There is no such write." if after is None else "There are no more writes.")
        return
    screen.table(
        COLUMNS, [(local(fact.at), str(fact.record), fact.kind.value, str(fact.correlation_id)) for fact in found]
    )
    if len(found) == limit:
        screen.say(f"\nThere may be more: byline writes --after {found[-1].cursor}")
