"""Several hands at one store's keys: two administrators, and processes that have some of the keys and not others."""

import pytest

from byline import Decision, KeyMissing, RunStatus
from byline.errors import UnknownKey
from byline.store.keys import KeyState, Resealed
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.keys.program import SCRIPT, store_of

KEYS = {"old": b"1" * 32, "new": b"2" * 32, "other": b"3" * 32}


def opened(host: Host, *ids: str) -> SqlStore:
    """The store of a process that has these keys."""
    store = SqlStore(
        f"sqlite:///{host.path.parent / 'byline.db'}", keys=KeyRing({each: KEYS[each] for each in ids}, ids[0])
    )
    store.open()
    return store


def values(store: SqlStore) -> dict[str, int]:
    return {key.key_id: key.values for key in store.keys.list()}


@pytest.mark.promise("P23")
async def test_a_reseal_does_not_call_done_what_it_sealed_with_another_key(host: Host) -> None:
    """Somebody activates a key that is not here: what stands in for it to seal what is new is no key to rotate to."""
    async with host.runtime(SCRIPT, store=opened(host, "old")) as runtime:
        for _ in range(3):
            await runtime.run("editor", "See to page 42.", actor=ALICE)
    one, two = opened(host, "old", "new"), opened(host, "old", "other")
    one.keys.activate("new")
    before = values(one)["old"]

    def meanwhile(so_far: Resealed) -> None:
        if so_far.done == 2:
            two.keys.activate("other")

    with pytest.raises(KeyMissing, match="active key 'other' is not here"):
        one.keys.reseal(meanwhile, batch=2)
    assert values(one) == {"new": 2, "old": before - 2, "other": 0}
    everything = opened(host, "old", "new", "other")
    assert everything.keys.reseal().unreadable == 0
    assert values(everything) == {"new": 0, "old": 0, "other": before}
    for store in (one, two, everything):
        store.close()


@pytest.mark.promise("P23")
async def test_a_key_is_not_dropped_where_the_active_one_is_not_here(host: Host) -> None:
    """The last key with which this process, and all that have its file, could seal: it stays open."""
    store = store_of(host.path.parent)
    store.open()
    [old] = values(store)
    kept = store.keys.file
    assert kept is not None
    before = kept.read_bytes()
    store.keys.activate(store.keys.add().key_id)
    store.close()
    kept.write_bytes(before)  # a backup, older than the new key
    store = store_of(host.path.parent)
    store.open()
    with pytest.raises(KeyMissing, match="is not here: restore it, or activate another"):
        store.keys.drop(old)
    assert {key.key_id: key.state for key in store.keys.list()}[old] is KeyState.STANDBY
    async with host.runtime(SCRIPT, store=store) as runtime:  # as before, it seals in the place of the lost one
        assert (await runtime.run("editor", "See to page 42.", actor=ALICE)).problem is None


@pytest.mark.promise("P23")
@pytest.mark.parametrize("key_id", ["\udcff", "", "a" * 300, "a,b", "\x00"])
def test_what_is_no_key_id_is_no_key(host: Host, key_id: str) -> None:
    store = store_of(host.path.parent)
    store.open()
    with pytest.raises(UnknownKey, match="there is no key"):
        store.keys.drop(key_id)
    with pytest.raises(KeyMissing, match="is not here"):
        store.keys.activate(key_id)
    assert len(values(store)) == 1
    store.close()


@pytest.mark.promise("P21", "P23")
async def test_a_decision_that_is_stored_is_no_error_for_want_of_a_key(host: Host) -> None:
    """In the middle of a reseal the turn is still to be read here, and the transcript is not."""
    async with host.runtime(SCRIPT, store=opened(host, "old")) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.pending is not None
        administrator = opened(host, "old", "new")
        administrator.keys.activate("new")

        def killed(_: Resealed) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            administrator.keys.reseal(killed)  # transcripts come first
        administrator.close()
        run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.QUEUED, 0)
        assert run.problem is not None
        assert "the key 'new', which is not here" in run.problem
    async with host.runtime(SCRIPT, store=opened(host, "old", "new")) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
