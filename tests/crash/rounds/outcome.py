"""What a round has left, seen from outside: in the host's tables, in what the listener heard, and in the store."""

from collections import Counter
from dataclasses import dataclass, field

from byline import RunStatus, StepKind
from byline.store.protocol import StoredRun
from byline.store.sql import SqlStore
from tests.crash.rounds.plan import NOT_IDEMPOTENT, OF_A_DATABASE, Fault, Plan, PlannedRun
from tests.crash.rounds.site import RoundSite

AT_REST = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.UNCERTAIN, RunStatus.DEAD_LETTER})
SETTLED = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED})
MANY = 10_000


@dataclass(slots=True)
class Outcome:
    """What became of a round: the counts of one table's line, and what may not be."""

    counts: Counter[str] = field(default_factory=Counter[str])
    struck: list[tuple[str, Fault]] = field(default_factory=list[tuple[str, Fault]])
    violations: list[str] = field(default_factory=list[str])


class Seen:
    """Reads what is there once, and says what of it breaks a promise."""

    def __init__(self, site: RoundSite, store: SqlStore) -> None:
        self._site = site
        self._store = store
        self.runs = {run.run_id: run for run in all_runs(store)}
        self._ids = site.run_ids()
        self.heard = Counter(
            (str(run_id), str(record)) for run_id, record in site.ask("select correlation_id, record from heard")
        )
        self._said = [
            (str(what), str(run_id), str(about), bool(heard))
            for what, run_id, about, heard in site.ask("select what, run_id, about, heard from said order by rowid")
        ]
        self._landed = {
            call.mark: [str(record) for record in site.landed(call)]
            for run in site.plan.runs
            for call in run.calls
            if call.writes
        }

    def at_rest(self) -> list[str]:
        """What may never be, whether or not somebody has settled what is uncertain."""
        return [*self._repeated(), *self._silent(), *self._unasked(), *self._decisions(), *self._stale()]

    def settled(self) -> list[str]:
        """What may not be once everything is settled."""
        return [*self.at_rest(), *self._unsettled(), *self._missing(), *self._feed()]

    def count(self, outcome: Outcome) -> None:
        counts = outcome.counts
        for run in self.runs.values():
            counts[f"run {run.status.value}"] += 1
        counts["writes"] += sum(map(len, self._landed.values()))
        counts["announcements"] += self.heard.total()
        reports = self._store.late_reports(conflicts_only=False, limit=MANY)
        counts["late reports"] += len(reports)
        counts["conflicts"] += sum(report.conflict for report in reports)
        for what, _, _, heard in self._said:
            counts[f"said {what}" if heard else "said, not heard"] += 1
        counts["executions"] += len(self._site.ask("select 1 from ran"))

    def _planned(self) -> "list[tuple[PlannedRun, StoredRun]]":
        return [(run, self.runs[self._ids[run.name]]) for run in self._site.plan.runs if run.name in self._ids]

    def _repeated(self) -> list[str]:
        """A write that must not be repeated was: by the machine, or by nobody's word."""
        again = Counter(about for what, _, about, _ in self._said if what == "run again")
        wrong: list[str] = []
        for tool in NOT_IDEMPOTENT:
            for key, times in self._site.ask("select key, count(*) from ran where tool = ? group by key", tool):
                if int(str(times)) > 1 + again[str(key)]:
                    wrong.append(f"{tool} ran {times} times for one call, {key}; run again was said {again[str(key)]}x")
        for planned, run in self._planned():
            for call in planned.calls:
                landed = len(self._landed.get(call.mark, []))
                if landed > (not call.denied):  # who says "run again" has seen that it did not land
                    wrong.append(
                        f"{call.mark} ({call.tool}, denied: {call.denied}) landed {landed} times; {run.run_id}"
                    )
        # An answer that was stored is asked for once, so that there is one call for each that is planned.
        for tool in {call.tool for run in self._site.plan.runs for call in run.calls}:
            made = len(self._site.ask("select distinct key from ran where tool = ?", tool))
            allowed = sum(call.tool == tool and not call.denied for run in self._site.plan.runs for call in run.calls)
            if made > allowed:
                wrong.append(f"{made} calls of {tool} ran, and {allowed} were planned and not denied")
        return wrong

    def _silent(self) -> list[str]:
        """A write landed, and was neither announced, nor waits for somebody's word."""
        return [
            f"{call.mark} ({call.tool}) landed as {record} and nobody was told; {run.run_id} is {run.status.value}"
            for planned, run in self._planned()
            for call in planned.calls
            for record in self._landed.get(call.mark, [])
            if not self.heard[str(run.run_id), record] and not self._waits_for_a_word(run)
            if not self._was_left(call.mark)
        ]

    def _waits_for_a_word(self, run: StoredRun) -> bool:
        return run.status is RunStatus.UNCERTAIN or (run.fence is not None and run.fence_verdict is not None)

    def _was_left(self, mark: str) -> bool:
        return any(what == "leave it" and about == mark for what, _, about, _ in self._said)

    def _unasked(self) -> list[str]:
        """Something was announced that did not land, or that this run did not write."""
        known = {
            (str(run.run_id), record)
            for planned, run in self._planned()
            for call in planned.calls
            for record in self._landed.get(call.mark, [])
        }
        return [
            f"{record} was announced for {run_id}, which did not write it"
            for run_id, record in self.heard.keys() - known
        ]

    def _decisions(self) -> list[str]:
        """A decision that was taken was forgotten: the same turn was decided twice, or the cancelled run went on."""
        wrong: list[str] = []
        for planned, run in self._planned():
            said = Counter(said[2:] for said in self._said if said[:2] == ("decide", str(run.run_id)))
            asked = {digest for digest, _ in said}
            turns = sum(any(call.waits for call in turn) for turn in planned.turns)
            if len(asked) > turns:
                wrong.append(f"{run.run_id} asked {len(asked)} times for decisions on {turns} turns")
            if any(said[digest, True] > 1 for digest in asked):
                wrong.append(f"{run.run_id} asked again for a decision that it had taken")
            cancelled = ("cancel", str(run.run_id), "", True) in self._said
            if cancelled and run.status is RunStatus.COMPLETED:
                wrong.append(f"{run.run_id} was cancelled, and completed")
        return wrong

    def _stale(self) -> list[str]:
        """A segment began a call behind its successor.

        Between the look at its heartbeat and the tool's first line a process may be stopped for any time. It is not
        where it executes one run at a time and is held before that look; then what is seen here is a fault.
        """
        plan = self._site.plan
        if plan.at_once > 1 or plan.faults() & OF_A_DATABASE:
            return []
        latest: dict[str, int] = {}
        wrong: list[str] = []
        for key, claim in self._site.ask("select key, claim from ran order by rowid"):
            if int(str(claim)) < latest.get(str(key), 0):
                wrong.append(f"claim {claim} began {key} behind claim {latest[str(key)]}")
            latest[str(key)] = max(int(str(claim)), latest.get(str(key), 0))
        return wrong

    def _unsettled(self) -> list[str]:
        wrong = [f"{run.name} was never started" for run in self._site.plan.runs if run.name not in self._ids]
        return wrong + [
            f"{run.run_id} is {run.status.value}" for run in self.runs.values() if run.status not in SETTLED
        ]

    def _missing(self) -> list[str]:
        """A run completed without a call that was released, or with two outcomes for one call."""
        wrong: list[str] = []
        for planned, run in self._planned():
            steps = self._store.list_steps(run.run_id, after=0, limit=MANY)
            ended = Counter(step.call_id for step in steps if step.kind is StepKind.TOOL)
            if any(times > 1 for times in ended.values()):
                wrong.append(f"a call of {run.run_id} has more than one outcome")
            if run.status is not RunStatus.COMPLETED:
                continue
            if len(ended) != len(planned.calls):
                wrong.append(f"{run.run_id} has {len(ended)} outcomes for {len(planned.calls)} calls")
            wrong += [
                f"{call.mark} ({call.tool}) was released, and did not land; {run.run_id}"
                for call in planned.calls
                if call.writes and not call.denied and not self._landed[call.mark] and not self._was_left(call.mark)
            ]
        return wrong

    def _feed(self) -> list[str]:
        """The feed has each write once."""
        facts = Counter(
            (str(fact.correlation_id), str(fact.record))
            for fact in self._store.writes(after=None, table=None, record=None, since=None, limit=MANY)
        )
        return [
            f"{record} of {run.run_id} is in the feed {facts[str(run.run_id), record]} times"
            for planned, run in self._planned()
            for call in planned.calls
            for record in self._landed.get(call.mark, [])
            if facts[str(run.run_id), record] != 1 and not self._was_left(call.mark)
        ]


def all_runs(store: SqlStore) -> list[StoredRun]:
    return list(store.list_runs(status=None, agent=None, after=None, limit=MANY))


def is_at_rest(plan: Plan, store: SqlStore) -> bool:
    runs = all_runs(store)
    return len(runs) == len(plan.runs) and {run.status for run in runs} <= AT_REST


def is_settled(plan: Plan, store: SqlStore) -> bool:
    return is_at_rest(plan, store) and {run.status for run in all_runs(store)} <= SETTLED
