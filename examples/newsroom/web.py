"""The newsroom's website: `python -m examples.newsroom.web`, then http://127.0.0.1:8000/.

It shows the site in the folder `NEWSROOM_DIR`, as the application does (`newsroom` by default).

Every page is made from values that are escaped as they are put in (Jinja's autoescape), under a policy that lets the
browser load nothing but this site's own style sheet and pictures, and run nothing.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from byline import WriteKind
from examples.newsroom.application import make_runtime, open_site
from examples.newsroom.label import DIGITAL_SOURCE, TransparencyLabel, create_label_tables
from examples.newsroom.models import DEFAULT_LANGUAGE, Language
from examples.newsroom.pictures import harbour
from examples.newsroom.site import Site
from examples.newsroom.visitors import Shown, show, shown_file
from examples.newsroom.words import LABELS, WORDS

HERE: Final = Path(__file__).parent
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # what was hidden or labelled a moment ago is so at the next look
}


class Headers:
    """Puts `HEADERS` on every response, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                taken = {name for name, _ in own}
                message["headers"] = [pair for pair in message.get("headers", []) if pair[0] not in taken] + own
            await send(message)

        await self._app(scope, receive, send_with_headers)


def make_app(site: Site) -> Starlette:
    """Make the website of a site."""
    create_label_tables(site)
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, auto_reload=False
    )

    def front(request: Request) -> Response:
        return RedirectResponse(f"/{_language(request)}/home")

    def page(request: Request) -> Response:
        language = _language(request)
        with site.reading() as session:
            shown = show(session, request.path_params["slug"], language)
        if shown is None:
            raise HTTPException(404)
        html = templates.get_template("page.html").render(
            language=language,
            words=WORDS[language],
            names={each: WORDS[each]["language"] for each in Language},
            page=shown,
            label_lines=label_lines(shown),
            statement=statement(shown),
        )
        return HTMLResponse(html)

    def file(request: Request) -> Response:
        with site.reading() as session:
            found = shown_file(session, request.path_params["name"])
            if found is None:
                raise HTTPException(404)
            drawn = harbour(found.name, found.width, found.height)
        return Response(drawn, media_type="image/svg+xml")

    def missing(request: Request, exception: Exception) -> Response:
        first = request.url.path.strip("/").partition("/")[0]
        language = Language(first) if first in set(Language) else DEFAULT_LANGUAGE
        html = templates.get_template("missing.html").render(language=language, words=WORDS[language])
        return HTMLResponse(html, status_code=404)

    return Starlette(
        routes=[
            Route("/", front),
            Route("/files/{name}", file),
            Mount("/static", StaticFiles(directory=HERE / "static")),
            Route("/{language}", front),
            Route("/{language}/{slug}", page),
        ],
        middleware=[Middleware(Headers)],
        exception_handlers={404: missing},
    )


def label_lines(page: Shown) -> list[str]:
    """Say what AI had a part in, each sentence once, in the page's language."""
    said = LABELS[page.language]
    return list(dict.fromkeys(said[label.record.table, label.kind] for label in page.labels))


def statement(page: Shown) -> dict[str, JsonValue]:
    """Say the same to machines, as schema.org's JSON-LD: where the page comes from, and each labelled passage of it.

    A page that an AI drafted is still put together from people's work too. A picture is not said to come from an AI:
    what is labelled is its choice, or the text that describes it.
    """
    parts: list[JsonValue] = [
        {"@type": "WebPageElement", "@id": f"#element-{label.record.uid}", "digitalSourceType": label.digital_source}
        for label in page.labels
        if label.record.table == "content_elements"
    ]
    return {
        "@context": "https://schema.org",
        "@type": "WebPage",
        "@id": f"/{page.language}/{quote(page.slug)}",
        "name": page.title,
        "inLanguage": page.language.value,
        "digitalSourceType": DIGITAL_SOURCE[WriteKind.UPDATED],
        **({"hasPart": parts} if parts else {}),
    }


async def catch_up(site: Site) -> None:
    """Label what was written while the label's listener was out of order."""
    async with make_runtime(site) as runtime:
        await TransparencyLabel(site).catch_up(runtime)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the application's site to this machine alone, once everything that was missed is labelled."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.newsroom.web", description="Serve the newsroom's website."
    )
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    site = open_site()
    asyncio.run(catch_up(site))
    uvicorn.run(make_app(site), host="127.0.0.1", port=given.port, server_header=False)


def _language(request: Request) -> Language:
    """Find the language of an address; the site's own for `/`.

    Raises:
        HTTPException: 404, it is no language of the site.
    """
    try:
        return Language(request.path_params.get("language", DEFAULT_LANGUAGE))
    except ValueError:
        raise HTTPException(404) from None


if __name__ == "__main__":
    main()
