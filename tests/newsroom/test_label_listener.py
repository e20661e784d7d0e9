"""The label: what is marked for visitors and their machines, when, how often, and how it is taken back."""

import json
import threading
import uuid

import pytest
from sqlalchemy import func, select

from byline import AfterAiRecordWrittenEvent, RecordReference, WriteKind
from examples.newsroom.label import LabelRow, TransparencyLabel
from examples.newsroom.models import Column, ContentElement, File, FileReference, Language, Page
from examples.newsroom.site import Site
from examples.newsroom.web import make_app
from tests.newsroom.visiting import Read, Visitor

COMPOSITE = "https://schema.org/CompositeWithTrainedAlgorithmicMediaDigitalSource"
TRAINED = "https://schema.org/TrainedAlgorithmicMediaDigitalSource"


@pytest.fixture
def label(site: Site) -> TransparencyLabel:
    return TransparencyLabel(site)


@pytest.fixture
def visitor(site: Site) -> Visitor:
    return Visitor(make_app(site))


def page_id(site: Site, slug: str, language: Language = Language.EN) -> int:
    with site.reading() as session:
        page = session.scalars(select(Page).where(Page.slug == slug)).one().in_language(language)
        assert page is not None
        return page.id


def lead_of(site: Site, slug: str, language: Language = Language.EN) -> tuple[int, int, int]:
    """The first element of a page, its first file reference and that reference's file."""
    with site.reading() as session:
        page = session.get_one(Page, page_id(site, slug, language))
        element = page.elements[0]
        reference = element.references[0]
        return element.id, reference.id, reference.file_id


def written(record: RecordReference, kind: WriteKind = WriteKind.UPDATED) -> AfterAiRecordWrittenEvent:
    return AfterAiRecordWrittenEvent(uuid.uuid4(), record, kind)


def said(read: Read) -> list[str]:
    """What the label says, line by line; nothing if there is none."""
    notes = read.all("div", role="note")
    return [line.text for line in read.all("li") if line.text in notes[0].text] if notes else []


def stated(read: Read) -> dict[str, object]:
    """What the page says to machines; empty if it says nothing."""
    scripts = read.all("script", type="application/ld+json")
    found: dict[str, object] = json.loads(scripts[0].text) if scripts else {}
    return found


async def test_a_page_that_was_written_says_so_to_people_and_machines(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    assert stated(await visitor.get("/en/film-club")) == {}
    label(written(RecordReference("pages", page_id(site, "film-club"))))
    read = await visitor.get("/en/film-club")

    assert "Parts of this page were made with the help of AI." in read.one("div", role="note").text
    assert read.one("summary").text == "What does that mean?"
    assert said(read) == ["The title of this page or its description was changed by AI."]
    assert "/en/ai-policy" in read.links
    assert stated(read) == {
        "@context": "https://schema.org",
        "@type": "WebPage",
        "@id": "/en/film-club",
        "name": "The film club has a new projector",
        "inLanguage": "en",
        "digitalSourceType": COMPOSITE,
    }
    for other in ("/de/film-club", "/en/culture", "/en/home"):
        assert stated(await visitor.get(other)) == {}, other


async def test_it_speaks_the_language_of_the_page(site: Site, label: TransparencyLabel, visitor: Visitor) -> None:
    label(written(RecordReference("pages", page_id(site, "film-club", Language.DE)), WriteKind.CREATED))
    read = await visitor.get("/de/film-club")
    assert "mit Hilfe von KI" in read.one("div", role="note").text
    assert read.one("summary").text == "Was heißt das?"
    assert said(read) == ["Der erste Entwurf dieser Seite stammt von einer KI."]
    assert stated(read)["inLanguage"] == "de"


async def test_a_passage_marks_its_page_and_is_named_itself(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    element, _, _ = lead_of(site, "film-club")
    label(written(RecordReference("content_elements", element), WriteKind.CREATED))
    read = await visitor.get("/en/film-club")
    assert said(read) == ["The first draft of a passage was written by AI."]
    assert stated(read)["digitalSourceType"] == COMPOSITE
    part = {"@type": "WebPageElement", "@id": f"#element-{element}", "digitalSourceType": TRAINED}
    assert stated(read)["hasPart"] == [part]
    assert len(read.all("section", id=f"element-{element}")) == 1


async def test_a_file_marks_every_page_that_shows_its_text(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    _, _, file = lead_of(site, "ferry-timetable")
    label(written(RecordReference("files", file)))
    for path in ("/en/ferry-timetable", "/de/ferry-timetable"):
        assert len(said(await visitor.get(path))) == 1, path
    assert said(await visitor.get("/en/harbour-wall")) == []

    with site.writing() as session:  # a third page shows it, and says something else of it
        home = session.get_one(Page, page_id(site, "home"))
        own = FileReference(file=session.get_one(File, file), alternative_text="Our own words")
        home.elements[0].references.append(own)
    assert said(await visitor.get("/en/home")) == []


async def test_an_attached_file_marks_the_page_of_its_element(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    _, reference, _ = lead_of(site, "ferry-timetable", Language.DE)
    label(written(RecordReference("file_references", reference), WriteKind.CREATED))
    assert said(await visitor.get("/de/ferry-timetable")) == ["Ein Bild hat eine KI ausgewählt."]
    assert said(await visitor.get("/en/ferry-timetable")) == []


async def test_a_hidden_passage_marks_no_page_until_it_is_published(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    with site.writing() as session:
        page = session.get_one(Page, page_id(site, "film-club"))
        draft = ContentElement(page_id=page.id, column=Column.MAIN, position=900, body="Draft.", hidden=True)
        session.add(draft)
        session.flush()
        uid = draft.id
    label(written(RecordReference("content_elements", uid), WriteKind.CREATED))
    assert said(await visitor.get("/en/film-club")) == []

    with site.writing() as session:
        session.get_one(ContentElement, uid).hidden = False
    assert said(await visitor.get("/en/film-club")) == ["The first draft of a passage was written by AI."]


async def test_a_label_goes_along_with_a_passage_that_is_moved(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    element, _, _ = lead_of(site, "film-club")
    label(written(RecordReference("content_elements", element)))
    with site.writing() as session:
        session.get_one(ContentElement, element).page_id = page_id(site, "summer-fair")
    assert said(await visitor.get("/en/film-club")) == []
    assert said(await visitor.get("/en/summer-fair")) == ["A passage was changed or moved by AI."]


@pytest.mark.promise("P8")
async def test_told_twice_it_labels_once(site: Site, label: TransparencyLabel, visitor: Visitor) -> None:
    event = written(RecordReference("pages", page_id(site, "film-club")))
    tellers = [threading.Thread(target=label, args=(event,)) for _ in range(8)]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    with site.reading() as session:
        assert session.scalar(select(func.count()).select_from(LabelRow)) == 1
    assert len(said(await visitor.get("/en/film-club"))) == 1


async def test_what_a_run_made_and_then_changed_is_still_made_by_it(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    run, record = uuid.uuid4(), RecordReference("pages", page_id(site, "film-club"))
    for kind in (WriteKind.UPDATED, WriteKind.CREATED, WriteKind.UPDATED):
        label(AfterAiRecordWrittenEvent(run, record, kind))
    label(written(record))
    assert said(await visitor.get("/en/film-club")) == ["The first draft of this page was written by AI."]


async def test_what_visitors_do_not_see_is_not_labelled(site: Site, label: TransparencyLabel, visitor: Visitor) -> None:
    uid = page_id(site, "film-club")
    for record in (RecordReference("users", uid), RecordReference("pages", "draft"), RecordReference("pages", 10**9)):
        label(written(record))
    assert said(await visitor.get("/en/film-club")) == []
    assert (await visitor.get("/en/film-club")).status == 200


async def test_a_persons_edit_keeps_the_label(site: Site, label: TransparencyLabel, visitor: Visitor) -> None:
    uid = page_id(site, "film-club")
    label(written(RecordReference("pages", uid)))
    with site.writing() as session:
        session.get_one(Page, uid).description = "Rewritten by hand."
    assert len(said(await visitor.get("/en/film-club"))) == 1


async def test_a_person_takes_the_label_back_and_the_next_write_brings_it_again(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    record = RecordReference("pages", page_id(site, "film-club"))
    other = RecordReference("content_elements", lead_of(site, "film-club")[0])
    for each in (record, record, other):
        label(written(each))

    assert label.withdraw(record, by="8") == 2
    assert label.withdraw(record, by="8") == 0
    assert said(await visitor.get("/en/film-club")) == ["A passage was changed or moved by AI."]
    assert label.withdraw(other, by="8") == 1
    assert stated(await visitor.get("/en/film-club")) == {}
    with site.reading() as session:
        assert {row.withdrawn_by for row in session.scalars(select(LabelRow))} == {"8"}

    label(written(record))
    assert len(said(await visitor.get("/en/film-club"))) == 1


async def test_a_hostile_title_does_not_leave_the_statement_for_machines(
    site: Site, label: TransparencyLabel, visitor: Visitor
) -> None:
    uid, hostile = page_id(site, "film-club"), "</script><script>alert(1)</script><!--"
    label(written(RecordReference("pages", uid)))
    with site.writing() as session:
        session.get_one(Page, uid).title = hostile
    read = await visitor.get("/en/film-club")
    assert len(read.all("script")) == 1
    assert stated(read)["name"] == hostile
