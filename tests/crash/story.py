"""How a run gets to where a process dies, and what another process makes of it."""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from byline import Decision, ModelCall, Run, RunStatus
from tests.crash.program import Order
from tests.crash.site import READ, Flavour, Site
from tests.crash.workers import Workers
from tests.host import ALICE, BOB

Entry = Literal["direct", "queued", "recovered"]
"""Who executes: the process that decides; a worker; one that has taken the run over from a dead process."""


async def suspended(site: Site, *turns: Sequence[ModelCall]) -> Run:
    """A run that waits, started by another process."""
    async with site.opened(*turns) as runtime:
        run = await runtime.run("editor", "Describe page 42.", actor=ALICE)
    assert run.status is RunStatus.AWAITING_APPROVAL
    return run


async def queued(site: Site, *turns: Sequence[ModelCall]) -> Run:
    """A run that is queued, and released if it had to wait."""
    async with site.opened(*turns, execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Describe page 42.", actor=ALICE)
        if turns == ([READ.call],):
            return run
        run = await runtime.execute(run.run_id)
        assert run.pending is not None
        run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
    assert run.status is RunStatus.QUEUED
    return run


async def the_run(site: Site) -> Run:
    async with site.opened() as runtime:
        (run,) = await runtime.list_runs()
    return run


async def killed_at(point: str, site: Site, workers: Workers, flavour: Flavour, entry: Entry = "direct") -> UUID:
    """Bring a run to a point of its execution, and kill the process there. Returns the run."""
    watched = {point}
    turns = ([flavour.call],)
    if entry == "queued":
        run_id = (await queued(site, *turns)).run_id
        workers.start(Order("execute", turns, run_id=run_id, watched=watched)).at(point).kill()
        return run_id
    begins = "after create" if flavour is READ else "after claim"
    first = Order("run", turns, watched={begins} if entry == "recovered" else watched)
    if flavour is not READ:
        first = Order("decide", turns, run_id=(await suspended(site, *turns)).run_id, watched=first.watched)
    if entry == "recovered":
        workers.start(first).at(begins).kill()
        first = Order("recover", turns, hours=1, watched=watched)
    workers.start(first).at(point).kill()
    return (await the_run(site)).run_id


async def recovered(site: Site, *turns: Sequence[ModelCall], hours: float = 2, max_takeovers: int = 3) -> Run:
    """What becomes of the one run when another process looks after it."""
    async with site.opened(*turns, hours=hours, max_takeovers=max_takeovers) as runtime:
        await runtime.recover()
        (run,) = await runtime.list_runs()
    return run


async def approved(site: Site, run: Run, *turns: Sequence[ModelCall]) -> Run:
    """What becomes of a waiting run when it is released in another process."""
    assert run.pending is not None
    async with site.opened(*turns, hours=2) as runtime:
        return await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)


async def announced(site: Site) -> list[tuple[str, str]]:
    """The feed."""
    async with site.opened() as runtime:
        return [(str(fact.record), fact.kind.value) for fact in await runtime.writes()]
