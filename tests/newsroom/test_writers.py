"""Each of the seven writers through the runtime: what it announces, when it refuses, and that it writes once."""

import re
from pathlib import Path
from uuid import uuid4

import pytest

from byline import (
    Landed,
    NotLanded,
    Reconciliation,
    RunStatus,
    ToolEffect,
    ToolError,
    ToolMessage,
    UncertaintyReason,
    WriteKind,
)
from byline.testing import allow_all
from examples.newsroom.crash import Moment, on_commit
from examples.newsroom.models import HistoryEntry
from examples.newsroom.seed import EDITOR
from examples.newsroom.tools import WRITING
from examples.newsroom.tools.desk import REFUSAL
from examples.newsroom.tools.writing import CHANGED
from tests.newsroom.stage import ASKS, DECIDES, WRITERS, Stage, Writer, answers, approval, tool_named

EACH = pytest.mark.parametrize("writer", WRITERS, ids=str)
CREATORS = pytest.mark.parametrize("writer", [w for w in WRITERS if w.kind is WriteKind.CREATED], ids=str)
IDEMPOTENT = [w for w in WRITERS if w.effect is ToolEffect.IDEMPOTENT_WRITE]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_stage_knows_every_writer() -> None:
    assert [(w.tool, w.effect) for w in WRITERS] == [(tool.spec.name, tool.spec.effect) for tool in WRITING]


@EACH
@pytest.mark.promise("P10", "P11")
async def test_one_call_writes_one_record_and_announces_it(writer: Writer, stage: Stage) -> None:
    model, before = stage.script(writer), stage.rows()
    async with stage.runtime(model) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        assert run.status is RunStatus.AWAITING_APPROVAL
        assert (stage.rows(), stage.history()) == (before, []), "a write waits for a person"
        assert run.pending is not None
        assert any("\n+" in shown for shown in run.pending.calls[0].preview), "the preview shows what comes"
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
        facts = await runtime.writes()
    assert run.status is RunStatus.COMPLETED
    assert stage.events() == [(writer.table, writer.kind)]
    record = stage.announced[0].record
    assert [(fact.record, fact.kind) for fact in facts] == [(record, writer.kind)]

    after = stage.rows()
    changed = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    assert changed == {f"{record.table}:({record.uid},)"}, "one record is touched"
    if writer.kind is WriteKind.CREATED and writer.tool != "attach_file":
        assert after[changed.pop()]["hidden"] is True, "what an agent creates is hidden"
    [entry] = stage.history()
    assert (entry.record_table, entry.record_uid) == (record.table, record.uid)
    assert (entry.editor, entry.run) == (EDITOR, str(run.run_id))
    assert (entry.before is None) is (writer.kind is WriteKind.CREATED)
    [answer] = answers(model)
    assert not answer.is_error
    assert all(f"{name}: {value}" in answer.text for name, value in entry.after.items()), "it says what stands now"


@EACH
@pytest.mark.promise("P10")
async def test_every_refusal_is_one_sentence_that_confirms_no_record(writer: Writer, tmp_path: Path) -> None:
    """A right that is gone, and a record that is gone, at execution, whatever the authority says."""
    said: list[list[ToolMessage]] = []
    for happens in ("removed", "revoked"):
        folder = tmp_path / str(len(said))
        folder.mkdir()
        stage = Stage(folder)
        model = stage.script(writer)
        async with stage.runtime(model, authority=allow_all) as runtime:
            run = await runtime.run("editor", "Please.", actor=ASKS)
            if happens == "removed":
                stage.remove(writer)
            else:
                stage.revoke()
            before = stage.rows()
            run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
        assert (run.status, stage.announced, stage.history()) == (RunStatus.COMPLETED, [], [])
        assert stage.rows() == before
        said.append(answers(model))
    gone, forbidden = said
    assert [(m.text, m.is_error) for m in gone] == [(m.text, m.is_error) for m in forbidden]
    assert gone[0].is_error
    assert gone[0].text.endswith(REFUSAL)


@EACH
async def test_who_may_not_is_shown_nothing_either(writer: Writer, stage: Stage) -> None:
    stage.revoke()
    async with stage.runtime(stage.script(writer), authority=allow_all) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        assert run.pending is not None
        assert run.pending.calls[0].preview == (REFUSAL,)


@EACH
@pytest.mark.promise("P15")
async def test_a_right_that_is_gone_is_asked_for_again(writer: Writer, stage: Stage) -> None:
    """The site's own authority says no, before the tool is asked."""
    model = stage.script(writer)
    async with stage.runtime(model) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        stage.revoke()
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
    assert (run.status, stage.announced, stage.history()) == (RunStatus.COMPLETED, [], [])
    assert answers(model)[0].is_error


@pytest.mark.parametrize("writer", [w for w in WRITERS if w.versioned], ids=str)
async def test_what_changed_since_it_was_read_is_not_overwritten(writer: Writer, stage: Stage) -> None:
    model = stage.script(writer)
    async with stage.runtime(model) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        stage.change(writer)
        before = stage.rows()
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
    assert (run.status, stage.announced, stage.rows()) == (RunStatus.COMPLETED, [], before)
    assert answers(model)[0].text.endswith(CHANGED)


@EACH
@pytest.mark.promise("P8", "P20")
async def test_a_call_that_comes_again_writes_nothing(writer: Writer, stage: Stage) -> None:
    call_id = uuid4()
    assert await stage.check_landed(writer, stage.context(call_id=call_id)) == NotLanded()
    first = await stage.execute(writer, stage.context(call_id=call_id))
    stage.change(writer)  # whatever others do in between
    before = stage.rows()
    second = await stage.execute(writer, stage.context(call_id=call_id, attempt=2))
    assert first.target is not None
    assert (first.changed, second.changed, second.target) == (True, False, first.target)
    assert (stage.rows(), len(stage.history())) == (before, 1)
    found = await stage.check_landed(writer, stage.context(call_id=call_id))
    assert found == Landed(first.target.record, writer.kind)
    assert await stage.check_landed(writer, stage.context()) == NotLanded(), "another call has not"


@EACH
@pytest.mark.promise("P10")
async def test_the_same_wish_again_is_as_the_effect_says(writer: Writer, stage: Stage) -> None:
    """A second call with the same arguments: an idempotent one changes nothing, another one adds or is refused."""
    await stage.execute(writer, stage.context())
    if writer.effect is ToolEffect.IDEMPOTENT_WRITE:
        again = await stage.execute(writer, stage.context())
        assert (again.changed, len(stage.history())) == (False, 1)
    elif writer.tool == "create_translation_draft":
        with pytest.raises(ToolError, match="has a version in that language"):
            await stage.execute(writer, stage.context())
    else:
        again = await stage.execute(writer, stage.context())
        assert (again.changed, len(stage.history())) == (True, 2)


@CREATORS
@pytest.mark.promise("P9", "P20")
async def test_a_lost_answer_settles_itself_by_the_history(writer: Writer, stage: Stage) -> None:
    def lose(entry: HistoryEntry) -> None:
        raise ConnectionError("the answer to the commit was lost")

    on_commit(stage.site, Moment.AFTER, lose)
    async with stage.runtime(stage.script(writer)) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
    assert run.status is RunStatus.COMPLETED
    assert stage.events() == [(writer.table, WriteKind.CREATED)]
    assert len(stage.history()) == 1


@CREATORS
@pytest.mark.promise("P9", "P20")
async def test_what_did_not_land_waits_for_a_person_and_lands_once(writer: Writer, stage: Stage) -> None:
    failures = [ConnectionError("gone")]

    def fail_once(entry: HistoryEntry) -> None:
        if failures:
            raise failures.pop()

    on_commit(stage.site, Moment.BEFORE, fail_once)
    async with stage.runtime(stage.script(writer)) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
        assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.RAISED)
        assert (stage.announced, stage.history()) == ([], [])
        run = await runtime.verify(run.run_id)
        assert run.uncertain is not None
        assert run.uncertain.found == NotLanded()
        again = Reconciliation.run_again(run.uncertain.digest)
        run = await runtime.reconcile(run.run_id, again, actor=DECIDES)
    assert run.status is RunStatus.COMPLETED
    assert stage.events() == [(writer.table, WriteKind.CREATED)]
    assert len(stage.history()) == 1


@pytest.mark.parametrize("writer", IDEMPOTENT, ids=str)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.promise("P10")
async def test_an_idempotent_write_that_failed_runs_again_and_is_announced_once(
    moment: Moment, writer: Writer, stage: Stage
) -> None:
    failures = [ConnectionError("gone")]

    def fail_once(entry: HistoryEntry) -> None:
        if failures:
            raise failures.pop()

    on_commit(stage.site, moment, fail_once)
    async with stage.runtime(stage.script(writer)) as runtime:
        run = await runtime.run("editor", "Please.", actor=ASKS)
        run = await runtime.decide(run.run_id, approval(run), actor=DECIDES)
    assert run.status is RunStatus.COMPLETED
    assert stage.events() == [(writer.table, WriteKind.UPDATED)]
    assert len(stage.history()) == 1


async def test_both_moments_of_a_commit_can_be_watched(stage: Stage) -> None:
    seen: list[Moment] = []
    on_commit(stage.site, Moment.BEFORE, lambda _: seen.append(Moment.BEFORE))
    on_commit(stage.site, Moment.AFTER, lambda _: seen.append(Moment.AFTER))
    await stage.execute(WRITERS[0], stage.context())
    assert seen == [Moment.BEFORE, Moment.AFTER]


async def test_a_busy_site_is_no_uncertain_write(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.newsroom.site.BUSY", 0.0)
    [writer] = [w for w in WRITERS if w.tool == "create_page_draft"]
    busy = Stage(stage.site.path.parent)  # its sessions do not wait
    with stage.site.writing() as session:
        session.connection()
        with pytest.raises(ToolError, match="busy"):
            await busy.execute(writer, busy.context())


@EACH
def test_a_writer_takes_no_absurd_ids_and_no_unclean_text(writer: Writer, stage: Stage) -> None:
    properties = tool_named(writer.tool).spec.parameters["properties"]
    assert isinstance(properties, dict)
    for name, schema in properties.items():
        found = re.findall(r"'(?:maximum|maxLength|enum|\$ref)'", str(schema))
        assert found, f"{name} is not bounded: {schema}"
