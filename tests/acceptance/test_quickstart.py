"""The quick start, as people meet it: in a process of its own, asked or not, killed or not."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AiActorContext,
    ProposedCall,
    RecordReference,
    ToolContext,
    ToolError,
    WriteKind,
)
from examples.quickstart.authority import SiteAuthority
from examples.quickstart.listener import VisitorsMark
from examples.quickstart.model import DESCRIPTION, HEADING
from examples.quickstart.seed import build_site
from examples.quickstart.site import Site
from examples.quickstart.tools import REFUSAL, add_content_element, read_page, update_page_metadata
from tests.acceptance.playing import ANNOUNCED, ROOT, announced, environment, play, talk

QUICKSTART = "examples.quickstart"
SEEDED = "Page about seeds."


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "site.db")) as db:
        return db.execute(sql).fetchall()


def description(folder: Path) -> object:
    return rows(folder, "SELECT description FROM pages WHERE id = 42")[0][0]


def drafts(folder: Path) -> list[tuple[object, ...]]:
    return rows(folder, "SELECT id, heading FROM content_elements WHERE NOT published")


def marked(folder: Path) -> list[object]:
    return [record for (record,) in rows(folder, "SELECT record FROM ai_marks ORDER BY record")]


# -- nobody is asked --------------------------------------------------------------------------------


def test_with_yes_it_tells_the_story_and_asks_no_one(tmp_path: Path) -> None:
    played = play(QUICKSTART, "--yes", "--dir", str(tmp_path))
    assert (played.returncode, played.stderr) == (0, "")
    assert announced(played.stdout) == [("pages:42", "updated"), ("content_elements:7", "created")]
    assert "-Page about seeds." in played.stdout
    assert 'class="ai-mark"' in played.stdout
    assert "\033" not in played.stdout, "colour is for a screen"
    assert description(tmp_path) == DESCRIPTION
    assert drafts(tmp_path) == [(7, HEADING)]
    assert marked(tmp_path) == ["content_elements:7", "pages:42"]
    run = ANNOUNCED.findall(played.stdout)[0][0]
    feed = played.stdout[played.stdout.index("The feed") :]
    assert re.findall(rf"(\S+) +(created|updated) +{run}", feed) == announced(played.stdout)


def test_the_files_are_gone_unless_a_folder_is_named(tmp_path: Path) -> None:
    played = subprocess.run(
        [sys.executable, "-m", QUICKSTART, "--yes"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert played.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("P9", "P18", "P20")
def test_a_killed_write_is_settled_by_a_person_and_lands_once(tmp_path: Path) -> None:
    played = play(QUICKSTART, "--crash", "--yes", "--dir", str(tmp_path))
    assert (played.returncode, played.stderr) == (0, "")
    before, after = played.stdout.split("SIGKILL", 1)
    assert announced(before) == [("pages:42", "updated")]
    assert "The run is uncertain: interrupted" in after
    assert announced(after) == [("content_elements:7", "created")]
    assert len(announced(played.stdout)) == 2
    assert "Drafts with these words on the site: 1. Announced: 1." in after
    assert drafts(tmp_path) == [(7, HEADING)]
    assert marked(tmp_path) == ["content_elements:7", "pages:42"]


@pytest.mark.parametrize("width", [20, 33, 40, 80])
def test_a_narrow_screen_breaks_no_word(width: int, tmp_path: Path) -> None:
    played = play(QUICKSTART, "--crash", "--yes", "--dir", str(tmp_path), COLUMNS=str(width))
    assert (played.returncode, played.stderr) == (0, "")
    lines = [line for line in played.stdout.splitlines() if not line.startswith("announced ")]
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []
    assert "data-digital-source-type=" in played.stdout
    words = " ".join(line.strip() for line in lines)
    assert "The agent wants to write. Nothing is written before user 8 has decided." in words
    assert "Did it land? y = yes, that is it n = no, it did not (and leave it so)" in words


@pytest.mark.parametrize(
    "arguments, instead",
    [((), "make quickstart ARGS=--yes"), (("--crash",), 'make quickstart ARGS="--crash --yes"')],
    ids=["asking", "crash"],
)
def test_without_a_terminal_it_says_so_and_does_nothing(
    arguments: tuple[str, ...], instead: str, tmp_path: Path
) -> None:
    played = play(QUICKSTART, *arguments, "--dir", str(tmp_path))
    assert played.returncode == 2
    assert instead in played.stderr
    assert "Traceback" not in played.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "site.db").write_text("mine")
    played = play(QUICKSTART, "--yes", "--dir", str(tmp_path))
    assert played.returncode == 2
    assert "no empty folder" in played.stderr
    assert (tmp_path / "site.db").read_text() == "mine"


# -- somebody is asked ------------------------------------------------------------------------------


def test_asked_and_approved(tmp_path: Path) -> None:
    with talk(QUICKSTART, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        assert description(tmp_path) == SEEDED, "a write waits for a person"
        demo.answer("y")
        demo.expect("change the body:")
        assert drafts(tmp_path) == []
        demo.answer("maybe")
        demo.expect("Please answer y, n or e.")
        demo.answer("y")
        assert demo.end() == 0
    assert announced(demo.output) == [("pages:42", "updated"), ("content_elements:7", "created")]
    for code, line in (
        ("1", "--- pages:42 description, now"),
        ("1", "+++ pages:42 description, then"),
        ("2", "@@ -1 +1 @@"),
        ("31", "-Page about seeds."),
        ("32", "+## Bringing seeds back (draft)"),
    ):
        assert f"\033[{code}m  {line}\033[0m" in demo.output, "what goes is red and what comes is green, on a screen"
    assert description(tmp_path) == DESCRIPTION


def test_denied_with_a_reason(tmp_path: Path) -> None:
    with talk(QUICKSTART, "--dir", str(tmp_path), NO_COLOR="1") as demo:
        for field, reason in (("description", "Too long."), ("body", "Not now.")):
            demo.expect(f"change the {field}:")
            demo.answer("n")
            demo.expect("Why not?")
            demo.answer(reason)
        demo.expect("The description stays as it was. I added no draft.")
        assert demo.end() == 0
    assert announced(demo.output) == []
    assert "\033" not in demo.output
    assert (description(tmp_path), drafts(tmp_path), marked(tmp_path)) == (SEEDED, [], [])


def test_changed_and_shown_anew(tmp_path: Path) -> None:
    with talk(QUICKSTART, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        demo.answer("e")
        demo.expect("The new description:")
        demo.answer("x" * 301)
        demo.expect("That does not fit:")
        demo.expect("change the description:")
        demo.answer("e")
        demo.expect("The new description:")
        demo.answer("Seeds to take home.")
        demo.expect("+Seeds to take home.")
        demo.expect("change the description:")
        assert description(tmp_path) == SEEDED, "a change is shown before it is written"
        demo.answer("y")
        demo.expect("change the body:")
        demo.answer("n")
        demo.expect("Why not?")
        demo.answer("")
        assert demo.end() == 0
    assert announced(demo.output) == [("pages:42", "updated")]
    assert description(tmp_path) == "Seeds to take home."


@pytest.mark.parametrize(
    "answer, count, told",
    [("y", 1, [("content_elements:7", "created")]), ("n", 1, []), ("r", 2, [("content_elements:8", "created")])],
)
def test_a_person_settles_the_crash(answer: str, count: int, told: list[tuple[str, str]], tmp_path: Path) -> None:
    with talk(QUICKSTART, "--crash", "--dir", str(tmp_path)) as demo:
        for field in ("description", "body"):
            demo.expect(f"change the {field}:")
            demo.answer("y")
        demo.expect("n = no, it did not (and leave it so)")
        demo.expect("Answer:")
        assert announced(demo.output) == [("pages:42", "updated")]
        demo.answer(answer)
        assert demo.end() == 0
    assert announced(demo.output) == [("pages:42", "updated"), *told]
    assert len(drafts(tmp_path)) == count
    assert ("Draft 7 stands unmarked" in demo.output) is (answer != "y")
    assert "Draft 8 stands unmarked" not in demo.output


def test_a_denied_draft_kills_nobody(tmp_path: Path) -> None:
    with talk(QUICKSTART, "--crash", "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        demo.answer("y")
        demo.expect("change the body:")
        demo.answer("n")
        demo.expect("Why not?")
        demo.answer("No.")
        assert demo.end() == 0
    assert "SIGKILL" not in demo.output


@pytest.mark.parametrize("arguments", [(), ("--crash",)], ids=["asking", "crash"])
def test_an_interrupt_is_calm(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with talk(QUICKSTART, *arguments, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        demo.interrupt()
        assert demo.end() == 130
    assert demo.output.count("Stopped. What was not decided was not written.") == 1
    assert "Traceback" not in demo.output
    assert description(tmp_path) == SEEDED


def test_the_end_of_the_input_is_no_answer(tmp_path: Path) -> None:
    with talk(QUICKSTART, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        os.write(demo.terminal, b"\x04")
        assert demo.end() == 1
    assert "No answer." in demo.output
    assert "Traceback" not in demo.output
    assert description(tmp_path) == SEEDED


# -- the parts that people copy ---------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return build_site(tmp_path / "site.db")


def as_user(site: Site, user: str) -> ToolContext:
    return ToolContext(
        run=uuid4(),
        actor=AiActorContext.user(user),
        call_id=uuid4(),
        attempt=1,
        claim=1,
        deadline=None,
        resources=site,
    )


@pytest.mark.parametrize("page_id", [12, 999, -1], ids=["closed", "missing", "absurd"])
async def test_a_refusal_does_not_tell_whether_the_page_exists(site: Site, page_id: int) -> None:
    neutral = f"^{re.escape(REFUSAL)}$"
    with pytest.raises(ToolError, match=neutral):
        await update_page_metadata.execute(as_user(site, "7"), {"page_id": page_id, "description": "New."})
    with pytest.raises(ToolError, match=neutral):
        await add_content_element.execute(as_user(site, "7"), {"page_id": page_id, "heading": "New", "body": "New."})
    with pytest.raises(ToolError, match=neutral):
        await read_page.execute(as_user(site, "9"), {"page_id": page_id})
    assert await update_page_metadata.make_preview(as_user(site, "9"), {"page_id": page_id, "description": "N"}) == [
        REFUSAL
    ]
    assert drafts(site.path.parent) == []


async def test_a_description_that_is_there_already_is_not_written(site: Site) -> None:
    result = await update_page_metadata.execute(as_user(site, "7"), {"page_id": 42, "description": SEEDED})
    assert not result.changed


@pytest.mark.promise("P4", "P8")
def test_the_mark_is_set_once_however_often_it_is_told(site: Site) -> None:
    mark = VisitorsMark(site)
    run = uuid4()
    for record in ("pages:42", "pages:42", "pages:999", "people:7"):
        mark(AfterAiRecordWrittenEvent(run, RecordReference.parse(record), WriteKind.UPDATED))
    assert marked(site.path.parent) == ["pages:42"]


def test_the_authority_knows_rights_by_record(site: Site) -> None:
    authority = SiteAuthority(site)

    def may(user: str, page_id: int | None, *, writes: bool) -> bool:
        call = ProposedCall(uuid4(), uuid4(), "editor", "a_tool", writes, {"page_id": page_id})
        return authority.may_run(AiActorContext.user(user), call)

    assert may("7", 42, writes=True)
    assert may("7", 12, writes=False)
    assert not may("7", 12, writes=True)
    assert may("8", 12, writes=True)
    assert not may("9", 42, writes=False)
    assert not may("7", None, writes=False)
    assert authority.load("9") is None
