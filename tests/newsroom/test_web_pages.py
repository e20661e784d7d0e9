"""The newsroom's pages as visitors get them: whole, in both languages, escaped, and nothing that is hidden."""

from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.newsroom.models import Column, ContentElement, File, FileReference, Language, Page
from examples.newsroom.pictures import harbour
from examples.newsroom.site import Site
from examples.newsroom.web import make_app
from tests.newsroom.visiting import Visitor

HOSTILE = """"><script>alert('x')</script><img src=x onerror=alert(1)>'{{ 7*7 }}</title>"""
HOSTILE_NAME = """"><script onload='x'>?#%2e.svg"""


@pytest.fixture
def visitor(site: Site) -> Visitor:
    return Visitor(make_app(site))


def page_of(session: Session, slug: str, language: Language = Language.EN) -> Page:
    page = session.scalars(select(Page).where(Page.slug == slug)).one().in_language(language)
    assert page is not None
    return page


def change(site: Site, slug: str, how: Callable[[Page], None], language: Language = Language.EN) -> None:
    with site.writing() as session:
        how(page_of(session, slug, language))


async def test_every_page_is_there_and_every_link_leads_to_one(visitor: Visitor) -> None:
    seen: set[str] = set()
    found = {"/en/home"}
    while ahead := found - seen:
        for path in ahead:
            read = await visitor.get(path)
            assert read.status == 200, path
            assert read.one("html").attributes["lang"] == path.split("/")[1]
            assert read.one("h1").text
            for picture in read.all("img"):
                assert (await visitor.get(picture.attributes["src"])).status == 200
            found |= {link for link in read.links if not link.startswith("#")}
        seen |= ahead
    assert len([path for path in seen if path.startswith("/en/")]) == 34
    assert len([path for path in seen if path.startswith("/de/")]) == 22


async def test_a_page_has_its_landmarks_its_columns_and_its_place(visitor: Visitor) -> None:
    read = await visitor.get("/en/ferry-timetable")

    assert [len(read.all(name)) for name in ("header", "main", "footer", "article", "h1")] == [1, 1, 1, 1, 1]
    skip = read.all("a")[0]
    assert skip.attributes["href"] == "#" + read.one("main").attributes["id"]
    assert len({nav.attributes["aria-label"] for nav in read.all("nav")}) == len(read.all("nav")) == 3
    assert read.one("a", **{"aria-current": "true"}).text == "News"
    assert "last ferry from Sollwick" in read.one("article").text
    assert "every 40 minutes" in read.one("aside").text
    assert "every 40 minutes" not in read.one("article").text
    assert read.one("meta", name="description").attributes["content"].startswith("From the first Monday")
    assert read.one("a", hreflang="de").attributes["href"] == "/de/ferry-timetable"


async def test_a_page_without_translation_or_description_says_nothing_of_them(visitor: Visitor) -> None:
    read = await visitor.get("/en/school-roof")
    assert read.all("a", rel="alternate") == read.all("link", rel="alternate") == []
    assert read.all("meta", name="description") == []
    assert read.one("img").attributes["alt"] == ""
    assert (await visitor.get("/de/school-roof")).status == 404


async def test_the_front_page_is_found_without_its_address(visitor: Visitor) -> None:
    assert (await visitor.get("/")).headers["location"] == "/en/home"
    assert (await visitor.get("/de")).headers["location"] == "/de/home"


@pytest.mark.parametrize("path", ["/en/nothing", "/de/nothing", "/fr/home", "/fr", "/en/home/more", "/files/none.svg"])
async def test_what_is_not_there_is_not_found(visitor: Visitor, path: str) -> None:
    read = await visitor.get(path)
    assert read.status == 404
    assert read.one("html").attributes["lang"] == ("de" if path.startswith("/de") else "en")


@pytest.mark.parametrize("path", ["/en/home", "/en/nothing", "/static/site.css", "/files/evening-ferry.svg", "/"])
async def test_every_response_says_what_a_browser_may_load(visitor: Visitor, path: str) -> None:
    headers = (await visitor.get(path)).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


async def test_nothing_comes_from_elsewhere(visitor: Visitor) -> None:
    read = await visitor.get("/de/home")
    loaded = [tag.attributes[name] for tag in read.tags for name in ("src", "href") if name in tag.attributes]
    assert [address for address in loaded if not address.startswith(("/", "#")) or address.startswith("//")] == []
    assert read.all("script") == read.all("style") == []
    assert [tag for tag in read.tags if "style" in tag.attributes] == []


async def test_a_hidden_page_and_what_is_below_it_is_nowhere(site: Site, visitor: Visitor) -> None:
    change(site, "news", lambda page: setattr(page, "hidden", True))
    for path in ("/en/news", "/de/news", "/en/ferry-timetable", "/de/ferry-timetable", "/files/evening-ferry.svg"):
        assert (await visitor.get(path)).status == 404, path
    assert "/en/news" not in (await visitor.get("/en/home")).links
    assert (await visitor.get("/en/film-club")).status == 200


async def test_a_hidden_translation_hides_itself_alone(site: Site, visitor: Visitor) -> None:
    change(site, "film-club", lambda page: setattr(page, "hidden", True), Language.DE)
    assert (await visitor.get("/de/film-club")).status == 404
    assert "/de/film-club" not in (await visitor.get("/de/culture")).links
    read = await visitor.get("/en/film-club")
    assert read.status == 200
    assert read.all("a", rel="alternate") == []


async def test_a_hidden_element_and_its_picture_are_nowhere(site: Site, visitor: Visitor) -> None:
    with site.writing() as session:
        file = File(name="secret.svg", alternative_text="A secret", width=10, height=10)
        element = ContentElement(column=Column.MAIN, position=900, body="Not yet.", heading="Soon", hidden=True)
        element.references.append(FileReference(file=file))
        page = page_of(session, "home")
        page.elements.append(element)

    read = await visitor.get("/en/home")
    assert "Not yet." not in read.html
    assert "secret" not in read.html.lower()
    assert (await visitor.get("/files/secret.svg")).status == 404

    with site.writing() as session:
        session.scalars(select(ContentElement).where(ContentElement.heading == "Soon")).one().hidden = False
    read = await visitor.get("/en/home")
    assert len(read.all("img", alt="A secret")) == 1
    assert read.one("h2").text == "Soon"
    assert (await visitor.get("/files/secret.svg")).status == 200


async def test_a_draft_without_an_address_is_nowhere(site: Site, visitor: Visitor) -> None:
    with site.writing() as session:
        parent = page_of(session, "news")
        session.add(Page(language=Language.EN, parent_id=parent.id, title="A draft of a page", hidden=True))
    assert "A draft of a page" not in (await visitor.get("/en/news")).html
    assert (await visitor.get("/en/None")).status == 404


async def test_hostile_content_stays_text(site: Site, visitor: Visitor) -> None:
    with site.writing() as session:
        page = page_of(session, "ferry-timetable")
        page.title = page.description = HOSTILE
        element = page.elements[0]
        element.heading = element.body = HOSTILE
        element.references[0].file.alternative_text = HOSTILE
        element.references[0].file.name = HOSTILE_NAME
    read = await visitor.get("/en/ferry-timetable")

    assert read.one("h1").text == HOSTILE
    assert read.one("h2").text == HOSTILE
    assert read.one("img").attributes["alt"] == HOSTILE
    assert read.one("meta", name="description").attributes["content"] == HOSTILE
    assert read.one("title").text == f"{HOSTILE} · The Sollwick Courier"
    assert read.all("script") == []
    assert [name for tag in read.tags for name in tag.attributes if name.startswith("on")] == []
    assert HOSTILE not in read.html
    assert "49" not in read.one("h1").text
    picture = await visitor.get(read.one("img").attributes["src"])
    assert picture.status == 200
    assert "script" not in picture.html


async def test_a_line_break_stays_in_a_list_and_an_empty_line_parts_paragraphs(site: Site, visitor: Visitor) -> None:
    def two(page: Page) -> None:
        page.elements[0].body = "One\ntwo\n\n\n\nthree"

    change(site, "home", two)
    article = await visitor.get("/en/home")
    assert [paragraph.text for paragraph in article.all("p")][2:4] == ["One\ntwo", "three"]


def test_a_picture_is_the_same_for_the_same_name_and_holds_no_name() -> None:
    drawn = harbour("north-mole.svg", 1200, 675)
    assert drawn == harbour("north-mole.svg", 1200, 675) != harbour("mill-wheel.svg", 1200, 675)
    assert "north-mole" not in drawn
    assert "script" not in harbour(HOSTILE, 10, 10)


async def test_a_page_that_nobody_labelled_says_nothing_of_ai(visitor: Visitor) -> None:
    read = await visitor.get("/en/ferry-timetable")
    assert read.all("div", role="note") == read.all("script") == []
    assert "digitalSourceType" not in read.html
