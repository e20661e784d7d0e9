"""Sealed values and their keys: readable with the key, in their place, by nobody else, and never printed."""

import base64
import multiprocessing
import stat
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from byline.actors import AiActorContext
from byline.approval.decision import Deny
from byline.errors import BylineError, ConfigurationError, KeyMissing, SealBroken, StoreError
from byline.models.messages import UserMessage
from byline.runs.status import RunStatus
from byline.runs.steps import NewStep, StepKind
from byline.store import tables
from byline.store.keyfile import KeyFile
from byline.store.protocol import Claim, HandBack, NewRun, Progress
from byline.store.sealed import SEALED
from byline.store.sealing import MAX_KEYS, KeyRing, Sealer
from byline.store.sql import SqlStore
from byline.testing.conformance import FakeClock
from byline.testing.conformance.segments import DONE
from byline.testing.conformance.stage import EDITOR, LEASE, Segment, Stage, ruling
from tests.store.sqlite import KEYS

RUN = UUID(int=7)
SECRET = "secret-of-the-run"
Make = Callable[[KeyRing | None], SqlStore]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(keys: KeyRing | None) -> SqlStore:
        store = SqlStore(f"sqlite:///{tmp_path}/byline.db", keys=keys)
        store.open()
        return store

    return make


def test_every_column_that_can_be_sealed_is_known_to_who_administers_keys() -> None:
    """Else a reseal would pass it over, and a drop would strand it."""
    binary = {
        column
        for table in tables.metadata.tables.values()
        for column in table.c
        if isinstance(column.type, sa.LargeBinary)
    }
    assert {sealed.column for sealed in SEALED} == binary


@given(st.binary(), st.binary(min_size=32, max_size=32))
def test_what_was_sealed_comes_back(data: bytes, key: bytes) -> None:
    ring = KeyRing({"k": key}, "k")
    sealed = Sealer(ring).seal(data, "run", "turn", RUN, 3)
    assert Sealer(ring).unseal(sealed, "run", "turn", RUN, 3) == data
    assert Sealer(ring).seal(data, "run", "turn", RUN, 3) != sealed


@pytest.mark.promise("P23")
def test_moved_value_does_not_open() -> None:
    sealer = Sealer(KEYS)
    sealed = sealer.seal(b"x", "message", "body", RUN, 1)
    places = [
        ("step", "body", RUN, 1),
        ("message", "turn", RUN, 1),
        ("message", "body", UUID(int=8), 1),
        ("message", "body", RUN, 2),
    ]
    for place in places:
        with pytest.raises(SealBroken):
            sealer.unseal(sealed, *place)


@pytest.mark.promise("P23")
def test_altered_value_does_not_open() -> None:
    sealer = Sealer(KEYS)
    sealed = sealer.seal(b"some content", "run", "turn", RUN)
    for position in range(len(sealed)):
        altered = bytearray(sealed)
        altered[position] ^= 1
        with pytest.raises(SealBroken if position not in (1, 2, 3) else (SealBroken, KeyMissing)):
            sealer.unseal(bytes(altered), "run", "turn", RUN)
    for length in range(len(sealed)):
        with pytest.raises((SealBroken, KeyMissing)):
            sealer.unseal(sealed[:length], "run", "turn", RUN)


@pytest.mark.promise("P23")
def test_wrong_key_and_missing_key_are_told_apart() -> None:
    sealed = Sealer(KEYS).seal(b"x", "run", "turn", RUN)
    with pytest.raises(SealBroken, match="'k1'"):
        Sealer(KeyRing({"k1": b"2" * 32}, "k1")).unseal(sealed, "run", "turn", RUN)
    with pytest.raises(KeyMissing, match="'k1'"):
        Sealer(KeyRing({"k2": b"1" * 32}, "k2")).unseal(sealed, "run", "turn", RUN)
    both = KeyRing({"k1": b"1" * 32, "k2": b"2" * 32}, "k2")
    assert Sealer(both).unseal(sealed, "run", "turn", RUN) == b"x"


# The ring, and where it comes from.

GOOD = base64.b64encode(b"1" * 32).decode()
PLAIN = base64.urlsafe_b64encode(b"\xfb\xff1" * 8 + b"2" * 8).decode().rstrip("=")
"""A key that could be an id, as many a tool prints one."""


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    "text",
    [
        "k1",
        "k1:",
        ":" + GOOD,
        GOOD,
        f"k1:{GOOD},",
        f"k1:{GOOD},k1:{GOOD}",
        "k1:" + GOOD[:8],
        f"k 1:{GOOD}",
        f"k1:{GOOD[:-1]}!",
        "k1:\u00fc",
        f"{PLAIN}:k1",
        f"{PLAIN}:main",
        f"{PLAIN}:{GOOD},{PLAIN}:{GOOD}",
        f"{b'1234'.hex() * 8}:main",
        ",".join(f"k{number}:{GOOD}" for number in range(MAX_KEYS + 1)),
    ],
)
def test_malformed_keys_are_refused_without_being_printed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BYLINE_KEYS", text)
    with pytest.raises(ConfigurationError, match="BYLINE_KEYS") as caught:
        KeyRing.from_environment()
    for secret in (GOOD, PLAIN, b"1234".hex()):
        assert secret[:8] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLINE_KEYS", f"new:{base64.b64encode(b'2' * 32).decode()}, old:{GOOD}")
    ring = KeyRing.from_environment()
    assert ring is not None
    assert (dict(ring.keys), ring.active) == ({"new": b"2" * 32, "old": b"1" * 32}, "new")
    assert KeyRing.parse(ring.format(), "x").keys == ring.keys
    monkeypatch.delenv("BYLINE_KEYS")
    assert KeyRing.from_environment() is None


def test_ring_shows_ids_only() -> None:
    ring = KeyRing({"k1": b"A" * 32}, "k1")
    assert repr(ring) == "KeyRing(ids=['k1'], active='k1')"
    assert "AAA" not in f"{ring} {ring!r} {vars(SqlStore('sqlite://', keys=ring))}"
    for keys, active in (({"k1": b"A" * 31}, "k1"), ({"k1": b"A" * 32}, "k2"), ({"": b"A" * 32}, "")):
        with pytest.raises(ConfigurationError):
            KeyRing(keys, active)


def test_no_key_is_added_to_as_many_as_are_read(make: Make, tmp_path: Path) -> None:
    key_file = tmp_path / "byline.db.key"
    key_file.touch(mode=0o600)
    key_file.write_text(",".join(f"k{number}:{GOOD}" for number in range(MAX_KEYS)))
    store = make(None)
    assert len(store.keys.list()) == MAX_KEYS
    with pytest.raises(ConfigurationError, match="drop those"):
        store.keys.add()
    store.keys.drop("k7")
    added = store.keys.add()
    store.close()
    again = make(None)
    assert added.key_id in [key.key_id for key in again.keys.list() if key.here]
    again.close()


@pytest.mark.promise("P23")
def test_key_file_is_made_beside_the_file_for_its_owner_only(make: Make, tmp_path: Path) -> None:
    store = make(None)
    run_id = Stage(store, store, FakeClock()).queued()
    store.close()
    key_file = tmp_path / "byline.db.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["byline.db", "byline.db.key"]
    again = make(None)
    assert again.claim(run_id, lease=LEASE, takeovers=0) is not None
    again.close()
    for mode in (0o640, 0o604, 0o660):
        key_file.chmod(mode)
        with pytest.raises(StoreError, match=f"chmod 600 {key_file}"):
            make(None)
    key_file.chmod(0o600)
    key_file.write_text("nonsense")
    with pytest.raises(StoreError, match="entry 1"):
        make(None)
    with key_file.open("wb") as file:
        file.truncate(2**40)  # more than any memory; it takes no room
    with pytest.raises(StoreError, match="longer than"):
        make(None)


def test_environment_comes_before_the_key_file(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLINE_KEYS", f"k1:{GOOD}")
    make(None).close()
    assert not (tmp_path / "byline.db.key").exists()


def _load(path: Path, results: "SimpleQueue[bytes]", barrier: Barrier) -> None:
    barrier.wait()
    results.put(KeyFile(path).load_or_make().format().encode())


@pytest.mark.promise("P23")
def test_eight_processes_agree_on_one_key(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    results, barrier = spawn.SimpleQueue(), spawn.Barrier(8)
    processes = [spawn.Process(target=_load, args=(tmp_path / "k.key", results, barrier)) for _ in range(8)]
    for process in processes:
        process.start()
    found = {results.get() for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["k.key"]


# What is lost with a key, and what is not.

OTHER = KeyRing({"k2": b"2" * 32}, "k2")


@pytest.mark.promise("P9", "P23")
def test_missing_key_claims_nothing_and_loses_nothing(make: Make) -> None:
    store = make(KEYS)
    stage = Stage(store, store, FakeClock())
    turn = stage.waiting(calls=2)
    store.decide(ruling(turn, {turn.calls[0].id: Deny("a reason")}))
    queued = stage.queued()
    ended = stage.started()
    ended.advance(Progress(steps=(NewStep(StepKind.MODEL),)))
    ended.advance(DONE)
    store.close()

    blind = make(OTHER)
    with pytest.raises(KeyMissing, match="'k1'"):
        blind.claim(queued, lease=LEASE, takeovers=0)
    assert (blind.get(queued).status, blind.get(queued).claim) == (RunStatus.QUEUED, 1)
    run = blind.get(turn.run_id)
    assert (run.turn, run.status, set(run.decided)) == (None, RunStatus.AWAITING_APPROVAL, {turn.calls[0].id})
    assert run.problem is not None
    assert "'k1'" in run.problem
    listed = blind.list_runs(status=None, agent=None, after=None, limit=9)
    assert [found.problem is not None for found in listed] == [True, False, True]
    assert listed[0].output is None
    assert len(blind.list_steps(ended.run_id, after=0, limit=9)) == 1
    assert blind.cancel(turn.run_id, "8") is RunStatus.CANCELLED
    blind.close()

    seeing = make(KEYS)
    assert seeing.claim(queued, lease=LEASE, takeovers=0) is not None
    assert seeing.get(ended.run_id).output == DONE.output
    seeing.close()


@pytest.mark.promise("P23")
def test_swapped_rows_are_noticed(make: Make) -> None:
    store = make(KEYS)
    run_id = uuid7()
    messages = (UserMessage(SECRET), UserMessage("other"))
    claim = store.create(NewRun(run_id=run_id, agent="a", actor=EDITOR, messages=messages), lease=LEASE)
    assert isinstance(claim, Claim)
    Segment(store, claim, 2).advance(HandBack())
    with store.engine.begin() as connection:
        body = sa.select(tables.message.c.body).where(tables.message.c.seq == 1).scalar_subquery()
        connection.execute(sa.update(tables.message).where(tables.message.c.seq == 0).values(body=body))
    with pytest.raises(SealBroken) as caught:
        store.claim(run_id, lease=LEASE, takeovers=0)
    assert store.get(run_id).status is RunStatus.QUEUED
    assert SECRET not in str(caught.value)
    store.close()


@pytest.mark.promise("P23")
def test_errors_show_nothing_that_was_said(make: Make) -> None:
    store = make(KEYS)
    run_id = uuid7()
    actor = AiActorContext.user("her-name")
    new = NewRun(run_id=run_id, agent="a", actor=actor, messages=(UserMessage(SECRET),))
    store.create(new, lease=None)
    with pytest.raises(BylineError) as caught:  # a run of that id is there already
        store.create(new, lease=None)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        assert actor.id not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__
    store.close()
