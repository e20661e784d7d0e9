"""`make demo`: the newsroom as people meet it, in a process of its own, asked or not, killed or not."""

import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from examples.newsroom.model import ALTERNATIVE_TEXT, DESCRIPTION, DESCRIPTION_DE, TITLE_DE
from tests.acceptance.playing import ANNOUNCED, ROOT, Talk, announced, play, talk

NEWSROOM = "examples.newsroom"
FIELDS = ("description", "alternative text", "description")


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "site.db")) as db:
        return db.execute(sql).fetchall()


def description(folder: Path) -> object:
    return rows(folder, "SELECT description FROM pages WHERE slug = 'boathouse-museum'")[0][0]


def alternative_text(folder: Path) -> object:
    return rows(folder, "SELECT alternative_text FROM files WHERE name = 'projector.svg'")[0][0]


def drafts(folder: Path) -> list[tuple[object, ...]]:
    return rows(folder, "SELECT title, description FROM pages WHERE hidden")


def labelled(folder: Path) -> set[tuple[object, ...]]:
    return set(rows(folder, "SELECT record, kind FROM ai_labels"))


def kinds(output: str) -> list[tuple[str, str]]:
    """Table and kind of every announced line."""
    return [(record.partition(":")[0], kind) for record, kind in announced(output)]


TWO = [("pages", "updated"), ("files", "updated")]
THREE = [*TWO, ("pages", "created")]


def answer_all(demo: Talk, *answers: str) -> None:
    """Answer the demo's questions in their order, `n` without a reason."""
    for field, answer in zip(FIELDS, answers, strict=False):
        demo.expect(f"change the {field}:")
        demo.answer(answer)
        if answer == "n":
            demo.expect("Why not?")
            demo.answer("")


@pytest.mark.promise("P10")
def test_with_yes_it_tells_the_story_and_asks_no_one(tmp_path: Path) -> None:
    played = play(NEWSROOM, "--yes", "--dir", str(tmp_path))
    assert (played.returncode, played.stderr) == (0, "")
    assert kinds(played.stdout) == THREE
    assert (description(tmp_path), alternative_text(tmp_path)) == (DESCRIPTION, ALTERNATIVE_TEXT)
    assert drafts(tmp_path) == [(TITLE_DE, DESCRIPTION_DE)]
    assert labelled(tmp_path) == set(announced(played.stdout)), "the site's own listener has labelled each"
    run = ANNOUNCED.findall(played.stdout)[0][0]
    feed = played.stdout[played.stdout.index("The feed") :]
    assert re.findall(rf"(\S+) +(created|updated) +{run}", feed) == announced(played.stdout)
    assert "The title of this page or its description was changed by AI." in played.stdout
    assert "\033" not in played.stdout, "colour is for a screen"


def test_a_model_without_a_key_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    played = play(NEWSROOM, "--yes", "--dir", str(tmp_path), "--model", "openai:gpt-5")
    assert played.returncode == 1
    assert "The run is dead_letter: not_retryable" in played.stdout
    assert "OPENAI_API_KEY" in played.stdout, "what to set stands where the story ends"
    assert rows(tmp_path, "SELECT * FROM history") == []


@pytest.mark.promise("P9", "P20")
@pytest.mark.parametrize(
    "moment, said",
    [
        ("before", "It did not land. r = run it again, n = leave it so: r (--yes)"),
        ("after", "The write has landed: the site's history holds the key of this very call"),
    ],
)
def test_a_killed_write_lands_once(moment: str, said: str, tmp_path: Path) -> None:
    played = play(NEWSROOM, "--crash", moment, "--yes", "--dir", str(tmp_path), COLUMNS="100")
    assert (played.returncode, played.stderr) == (0, "")
    before, after = played.stdout.split("SIGKILL", 1)
    assert (kinds(before), kinds(after)) == (TWO, [("pages", "created")])
    assert said in after
    assert drafts(tmp_path) == [(TITLE_DE, DESCRIPTION_DE)]
    assert labelled(tmp_path) == set(announced(played.stdout))


@pytest.mark.parametrize("answer, count", [("r", 1), ("n", 0)])
def test_a_person_settles_the_crash(answer: str, count: int, tmp_path: Path) -> None:
    with talk(NEWSROOM, "--crash", "--dir", str(tmp_path)) as demo:
        answer_all(demo, "y", "y", "y")
        demo.expect("n = leave it so:")
        assert (kinds(demo.output), drafts(tmp_path)) == (TWO, [])
        demo.answer(answer)
        assert demo.end() == 0
    assert kinds(demo.output) == THREE[: 2 + count]
    assert len(drafts(tmp_path)) == count


def test_denied(tmp_path: Path) -> None:
    with talk(NEWSROOM, "--crash", "--dir", str(tmp_path), NO_COLOR="1") as demo:
        answer_all(demo, "n", "n", "n")
        demo.expect("The German page was not made.")
        assert demo.end() == 0
    assert announced(demo.output) == []
    assert "SIGKILL" not in demo.output, "what is not run kills nobody"
    assert (description(tmp_path), drafts(tmp_path), labelled(tmp_path)) == ("", [], set())


def test_changed_and_shown_anew(tmp_path: Path) -> None:
    with talk(NEWSROOM, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        demo.answer("e")
        demo.expect("The new description:")
        demo.answer("x" * 301)
        demo.expect("That does not fit:")
        demo.expect("change the description:")
        demo.answer("e")
        demo.expect("The new description:")
        demo.answer("A boat from below.")
        demo.expect("+A boat from below.")
        assert description(tmp_path) == "", "a change is shown before it is written"
        answer_all(demo, "y", "n", "n")
        assert demo.end() == 0
    assert kinds(demo.output) == [("pages", "updated")]
    assert description(tmp_path) == "A boat from below."


@pytest.mark.parametrize("width", [33, 80])
def test_a_narrow_screen_breaks_no_word(width: int, tmp_path: Path) -> None:
    played = play(NEWSROOM, "--crash", "--yes", "--dir", str(tmp_path), COLUMNS=str(width))
    assert (played.returncode, played.stderr) == (0, "")
    lines = [line for line in played.stdout.splitlines() if not line.startswith("announced ")]
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize(
    "arguments, instead",
    [((), "make demo ARGS=--yes"), (("--crash",), 'make demo ARGS="--crash --yes"')],
    ids=["asking", "crash"],
)
def test_without_a_terminal_it_says_so_and_does_nothing(
    arguments: tuple[str, ...], instead: str, tmp_path: Path
) -> None:
    played = play(NEWSROOM, *arguments, "--dir", str(tmp_path))
    assert played.returncode == 2
    assert instead in played.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [(), ("--crash",)], ids=["asking", "crash"])
def test_an_interrupt_is_calm(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with talk(NEWSROOM, *arguments, "--dir", str(tmp_path)) as demo:
        demo.expect("change the description:")
        demo.interrupt()
        assert demo.end() == 130
    assert demo.output.count("Stopped. What was not decided was not written.") == 1
    assert "Traceback" not in demo.output
    assert description(tmp_path) == ""


@pytest.mark.parametrize(
    "given, command",
    [
        ((), "-m examples.newsroom"),
        (("ARGS=--crash --yes",), "-m examples.newsroom --crash --yes"),
        (("MODEL=openai:local", "ARGS=--yes"), "-m examples.newsroom --model 'openai:local' --yes"),
    ],
)
def test_make_demo_passes_on_what_it_is_given(given: tuple[str, ...], command: str) -> None:
    # Under `make test ARGS=…` a make of its own would take over what that one was given.
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "ARGS"}
    printed = subprocess.run(
        ["make", "-n", "-o", ".venv/.installed", "demo", *given],
        cwd=ROOT,
        env=shell,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split()[1:] == command.split()
