"""The label behind the newsroom's own tools: from an approved write to what visitors and machines read."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pydantic import JsonValue
from sqlalchemy import select

from byline import AfterAiRecordWrittenEvent, AiActorContext, Decision, Grant, Listener, RecordReference, Run, RunStatus
from byline.testing import ScriptedModel, call
from examples.newsroom.application import AGENT
from examples.newsroom.label import LabelBase, LabelRow, TransparencyLabel
from examples.newsroom.models import ContentElement, File, Language, Page
from examples.newsroom.seed import APPROVER, EDITOR
from examples.newsroom.site import Site
from examples.newsroom.web import make_app
from tests.newsroom.bare import bare_runtime
from tests.newsroom.visiting import Visitor

ASKS = AiActorContext.user(EDITOR)
DECIDES = AiActorContext.user(APPROVER, grants={Grant.APPROVE})
UPDATED = "https://schema.org/CompositeWithTrainedAlgorithmicMediaDigitalSource"


@dataclass(frozen=True, slots=True)
class Newsroom:
    """The site, its label and its visitor, and the runtime's way to one write."""

    site: Site
    label: TransparencyLabel
    visitor: Visitor

    def page(self, slug: str, language: Language = Language.EN) -> int:
        with self.site.reading() as session:
            page = session.scalars(select(Page).where(Page.slug == slug)).one().in_language(language)
            assert page is not None
            return page.id

    def lead(self, slug: str, language: Language = Language.EN) -> int:
        with self.site.reading() as session:
            return session.get_one(Page, self.page(slug, language)).elements[0].id

    def file(self, name: str) -> int:
        with self.site.reading() as session:
            return session.scalars(select(File.id).where(File.name == name)).one()

    def labels(self) -> int:
        with self.site.reading() as session:
            return len(session.scalars(select(LabelRow)).all())

    async def labelled(self, path: str) -> bool:
        """Whether a page says so: to people and to machines, or to neither."""
        read = await self.visitor.get(path)
        assert read.status == 200, path
        to_people, to_machines = bool(read.all("div", role="note")), bool(read.all("script"))
        assert to_people == to_machines == (UPDATED in read.html), path
        return to_people

    async def propose(self, tool: str, listeners: list[Listener], **arguments: JsonValue) -> Run:
        async with bare_runtime(self.site, script(tool, arguments), listeners) as runtime:
            run = await runtime.run(AGENT, "Please.", actor=ASKS)
        assert run.status is RunStatus.AWAITING_APPROVAL, run
        return run

    async def approve(self, run: Run, tool: str, listeners: list[Listener], **arguments: JsonValue) -> Run:
        assert run.pending is not None
        async with bare_runtime(self.site, script(tool, arguments), listeners) as runtime:
            return await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=DECIDES)

    async def write(self, tool: str, listeners: list[Listener], **arguments: JsonValue) -> None:
        run = await self.approve(await self.propose(tool, listeners, **arguments), tool, listeners, **arguments)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")

    async def catch_up(self, at_once: int = 500) -> int:
        async with bare_runtime(self.site, ScriptedModel([])) as runtime:
            return await self.label.catch_up(runtime, at_once=at_once)


def script(tool: str, arguments: Mapping[str, JsonValue]) -> ScriptedModel:
    return ScriptedModel([[call(tool, **arguments)], "Done."])


@pytest.fixture
def newsroom(site: Site) -> Newsroom:
    return Newsroom(site, TransparencyLabel(site), Visitor(make_app(site)))


async def test_a_page_is_labelled_once_its_write_is_approved_and_not_before(newsroom: Newsroom) -> None:
    tool, given = "set_page_metadata", {"page_id": newsroom.page("boathouse-museum"), "expected_version": 1}
    run = await newsroom.propose(tool, [newsroom.label], **given, description="Nine metres of larch.")
    assert not await newsroom.labelled("/en/boathouse-museum")

    await newsroom.approve(run, tool, [newsroom.label], **given, description="Nine metres of larch.")
    assert await newsroom.labelled("/en/boathouse-museum")
    read = await newsroom.visitor.get("/en/boathouse-museum")
    assert read.one("meta", name="description").attributes["content"] == "Nine metres of larch."
    assert not await newsroom.labelled("/en/film-club")


async def test_what_was_denied_is_not_labelled(newsroom: Newsroom) -> None:
    given: dict[str, JsonValue] = {"page_id": newsroom.page("film-club"), "expected_version": 1, "title": "No"}
    run = await newsroom.propose("set_page_metadata", [newsroom.label], **given)
    assert run.pending is not None
    async with bare_runtime(newsroom.site, script("set_page_metadata", given), [newsroom.label]) as runtime:
        run = await runtime.decide(run.run_id, Decision.deny(run.pending.digest, "Not so."), actor=DECIDES)
    assert run.status is RunStatus.COMPLETED
    assert newsroom.labels() == 0
    assert not await newsroom.labelled("/en/film-club")


async def test_an_alternative_text_labels_the_pages_that_show_the_picture(newsroom: Newsroom) -> None:
    file = newsroom.file("projector.svg")
    await newsroom.write(
        "set_alternative_text",
        [newsroom.label],
        file_id=file,
        expected_version=1,
        alternative_text="A film projector on a table.",
    )
    assert await newsroom.labelled("/en/film-club")
    assert await newsroom.labelled("/de/film-club")
    assert not await newsroom.labelled("/en/summer-fair")
    picture = (await newsroom.visitor.get("/en/film-club")).one("img")
    assert picture.attributes["alt"] == "A film projector on a table."


async def test_a_moved_passage_labels_the_page_where_it_stands(newsroom: Newsroom) -> None:
    await newsroom.write(
        "move_content_element",
        [newsroom.label],
        element_id=newsroom.lead("film-club"),
        expected_version=1,
        page_id=newsroom.page("summer-fair"),
        column="aside",
        position=50,
    )
    assert await newsroom.labelled("/en/summer-fair")
    assert not await newsroom.labelled("/en/film-club")


async def test_an_attached_file_labels_the_page_that_shows_it(newsroom: Newsroom) -> None:
    await newsroom.write(
        "attach_file",
        [newsroom.label],
        element_id=newsroom.lead("boathouse-museum"),
        expected_version=1,
        file_id=newsroom.file("projector.svg"),
        alternative_text="A film projector.",
    )
    assert await newsroom.labelled("/en/boathouse-museum")
    assert not await newsroom.labelled("/en/film-club")


async def test_a_draft_is_seen_and_labelled_when_a_person_publishes_it(newsroom: Newsroom) -> None:
    museum = newsroom.page("boathouse-museum")
    await newsroom.write(
        "create_page_draft", [newsroom.label], parent_id=museum, title="Telegrams", description="A wall of them."
    )
    await newsroom.write(
        "create_content_element_draft", [newsroom.label], page_id=museum, column="main", body="In the loft."
    )
    await newsroom.write(
        "create_translation_draft",
        [newsroom.label],
        page_id=museum,
        expected_version=1,
        language="de",
        title="Das Museum im Bootsschuppen",
        description="Neun Meter Lärche.",
    )
    assert newsroom.labels() == 3
    assert not await newsroom.labelled("/en/boathouse-museum")
    assert "Telegrams" not in (await newsroom.visitor.get("/en/boathouse-museum")).html
    for hidden in ("/de/boathouse-museum", "/en/telegrams"):
        assert (await newsroom.visitor.get(hidden)).status == 404

    with newsroom.site.writing() as session:
        session.scalars(select(ContentElement).where(ContentElement.body == "In the loft.")).one().hidden = False
    assert await newsroom.labelled("/en/boathouse-museum")

    with newsroom.site.writing() as session:
        for page in session.scalars(select(Page).where(Page.hidden)):
            page.slug = page.slug if page.translation_of else "telegrams"
            page.hidden = False
    assert await newsroom.labelled("/de/boathouse-museum")
    assert await newsroom.labelled("/en/telegrams")


@pytest.mark.promise("P6")
async def test_a_label_that_fails_hurts_nobody_and_is_caught_up(
    newsroom: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    with newsroom.site.writing() as session:
        LabelBase.metadata.drop_all(session.connection())
    told: list[AfterAiRecordWrittenEvent] = []
    uid = newsroom.page("boathouse-museum")
    with caplog.at_level(logging.ERROR, "byline"):
        await newsroom.write(
            "set_page_metadata",
            [newsroom.label, told.append],
            page_id=uid,
            expected_version=1,
            description="Larch.",
        )
    assert [event.record for event in told] == [RecordReference("pages", uid)]
    assert [(record.levelname, record.__dict__["action"]) for record in caplog.records] == [
        ("ERROR", "listener_failed")
    ]
    with newsroom.site.reading() as session:
        assert session.get_one(Page, uid).description == "Larch."

    repaired = Newsroom(newsroom.site, TransparencyLabel(newsroom.site), newsroom.visitor)
    assert not await repaired.labelled("/en/boathouse-museum")
    assert await repaired.catch_up() == 1
    assert await repaired.labelled("/en/boathouse-museum")


@pytest.mark.promise("P8")
async def test_an_outage_is_caught_up_page_by_page_and_each_fact_once(newsroom: Newsroom) -> None:
    for version, title in enumerate(("One", "Two", "Three"), 1):
        page = newsroom.page("film-club")
        await newsroom.write("set_page_metadata", [], page_id=page, expected_version=version, title=title)
    assert newsroom.labels() == 0

    assert await newsroom.catch_up(at_once=2) == 3
    assert newsroom.labels() == 3
    assert await newsroom.labelled("/en/film-club")
    assert await newsroom.catch_up() == 0

    page = newsroom.page("summer-fair")
    await newsroom.write("set_page_metadata", [], page_id=page, expected_version=1, title="Four")
    assert await newsroom.catch_up() == 1
    assert newsroom.labels() == 4


async def test_what_the_listener_heard_is_not_labelled_again_by_catching_up(newsroom: Newsroom) -> None:
    page = newsroom.page("film-club")
    await newsroom.write("set_page_metadata", [newsroom.label], page_id=page, expected_version=1, title="One")
    assert newsroom.labels() == 1
    async with bare_runtime(newsroom.site, ScriptedModel([])) as runtime:
        read = await asyncio.gather(*(newsroom.label.catch_up(runtime) for _ in range(4)))
    assert max(read) == 1
    assert newsroom.labels() == 1
    assert await newsroom.catch_up() == 0


@pytest.mark.promise("P8")
async def test_old_facts_do_not_bring_back_what_was_withdrawn(newsroom: Newsroom) -> None:
    page = newsroom.page("film-club")
    await newsroom.write("set_page_metadata", [newsroom.label], page_id=page, expected_version=1, title="One")
    assert newsroom.label.withdraw(RecordReference("pages", page), by=APPROVER) == 1
    assert not await newsroom.labelled("/en/film-club")

    assert await newsroom.catch_up() == 1
    assert not await newsroom.labelled("/en/film-club")

    await newsroom.write("set_page_metadata", [], page_id=page, expected_version=2, title="Two")
    assert await newsroom.catch_up() == 1
    assert await newsroom.labelled("/en/film-club")
