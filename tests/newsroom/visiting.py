"""A visitor of the newsroom's website: asks for pages, and reads them as a browser's parser does."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx
from starlette.types import ASGIApp


@dataclass(slots=True)
class Tag:
    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass(slots=True)
class Read:
    """A response, and every element of it with the text that stands in it."""

    status: int
    headers: httpx.Headers
    html: str
    tags: list[Tag] = field(default_factory=list)

    def all(self, name: str, /, **attributes: str) -> list[Tag]:
        return [tag for tag in self.tags if tag.name == name and attributes.items() <= tag.attributes.items()]

    def one(self, name: str, /, **attributes: str) -> Tag:
        (found,) = self.all(name, **attributes)
        return found

    @property
    def links(self) -> list[str]:
        return [tag.attributes["href"] for tag in self.all("a")]


class _Parser(HTMLParser):
    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read
        self._open: list[Tag] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Tag(tag, {name: value or "" for name, value in attrs})
        self._read.tags.append(found)
        if tag not in self.VOID:
            self._open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._read.tags.append(Tag(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        closed = self._open.pop()
        assert closed.name == tag, f"</{tag}> closes <{closed.name}>"

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            tag.text += data

    def close(self) -> None:
        super().close()
        assert self._open == [], "an element is not closed"


class Visitor:
    """Asks an application for pages, without a server between."""

    def __init__(self, app: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(app=app)

    async def get(self, path: str) -> Read:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://newsroom.test") as client:
            answer = await client.get(path)
        read = Read(answer.status_code, answer.headers, answer.text)
        if answer.headers.get("content-type", "").startswith("text/html"):
            parser = _Parser(read)
            parser.feed(read.html)
            parser.close()
        return read
