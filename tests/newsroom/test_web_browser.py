"""The newsroom in a real browser: the label is read, nothing is blocked that is needed, nothing is complained of."""

import json
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import uvicorn
from playwright.async_api import Browser, ConsoleMessage, async_playwright
from sqlalchemy import select

from byline import AfterAiRecordWrittenEvent, RecordReference, WriteKind
from examples.newsroom.label import TransparencyLabel
from examples.newsroom.models import Page
from examples.newsroom.site import Site
from examples.newsroom.web import make_app

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists() and "CI" not in os.environ,
    reason=f"needs a browser: {CHROMIUM} is missing (on Debian: the package chromium)",
)


class Served(uvicorn.Server):
    """The website on a free port of this machine, on a thread of its own."""

    def __init__(self, site: Site) -> None:
        super().__init__(uvicorn.Config(make_app(site), host="127.0.0.1", port=0, log_level="warning"))
        self.listening = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        self.listening.set()

    @property
    def address(self) -> str:
        assert self.listening.wait(20)
        host, port = self.servers[0].sockets[0].getsockname()
        return f"http://{host}:{port}"


@pytest.fixture
def address(site: Site) -> Generator[str]:
    server = Served(site)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.address
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        await launched.close()


async def test_the_label_is_read_on_a_served_page(site: Site, address: str, browser: Browser, tmp_path: Path) -> None:
    label = TransparencyLabel(site)
    with site.reading() as session:
        page_id = session.scalars(select(Page.id).where(Page.slug == "ferry-timetable")).one()
    label(AfterAiRecordWrittenEvent(uuid.uuid4(), RecordReference("pages", page_id), WriteKind.UPDATED))

    tab = await browser.new_page()
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        complaints.append(message.text)

    tab.on("console", hear)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: complaints.append(request.url))
    await tab.goto(f"{address}/en/ferry-timetable", wait_until="networkidle")

    note = tab.get_by_role("note", name="Use of AI")
    assert "with the help of AI" in await note.inner_text()
    lines = note.get_by_role("listitem")
    assert await lines.count() == 0, "what it means is folded away at first"
    await tab.keyboard.press("Tab")
    assert await tab.evaluate("document.activeElement.className") == "skip"
    await tab.get_by_text("What does that mean?").press("Enter")
    assert await lines.all_inner_texts() == ["The title of this page or its description was changed by AI."]

    statement = json.loads(await tab.locator("script[type='application/ld+json']").inner_text())
    assert statement["digitalSourceType"].endswith("/CompositeWithTrainedAlgorithmicMediaDigitalSource")

    picture = tab.locator("article img")
    assert await picture.evaluate("image => image.complete && image.naturalWidth") == 1200
    assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 249, 244)"
    assert await tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    await tab.screenshot(path=tmp_path / "labelled.png", full_page=True)

    await tab.get_by_role("link", name="Deutsch").click()
    await tab.wait_for_url("**/de/ferry-timetable")
    assert await tab.get_by_role("heading", level=1).inner_text() == "Die Fähre fährt im Winter eine Stunde länger"
    assert await tab.get_by_role("note").count() == 0
    assert complaints == []


async def test_hostile_content_does_nothing_in_a_browser(site: Site, address: str, browser: Browser) -> None:
    with site.writing() as session:
        page = session.scalars(select(Page).where(Page.slug == "ferry-timetable")).one()
        hostile = "</title><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
        page.title = page.description = page.elements[0].body = hostile
        page.elements[0].references[0].file.alternative_text = f'"{hostile}'
    tab = await browser.new_page()
    await tab.goto(f"{address}/en/ferry-timetable", wait_until="networkidle")
    assert await tab.get_by_role("heading", level=1).inner_text() == hostile
    assert await tab.title() == f"{hostile} · The Sollwick Courier"
    assert await tab.locator("script, main [onerror]").count() == 0
