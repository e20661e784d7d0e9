"""How the application is found, and what is said when it is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.host import Host


@pytest.mark.parametrize(
    "name, said",
    [
        ("", "name your application: --app module:attribute"),
        ("tests.cli.program", "is not module:attribute"),
        (":runtime", "is not module:attribute"),
        ("tests.cli.nowhere:runtime", "there is no module 'tests.cli.nowhere'"),
        ("..program:runtime", "is no name of a module"),
        ("tests.cli.program:nothing", "tests.cli.program has no 'nothing'"),
        ("tests.cli.program:NOT_A_RUNTIME", "is no AgentRuntime and no function that returns one: int"),
        ("tests.cli.program:cli_actor", "is no AgentRuntime and no function that returns one: AiActorContext"),
    ],
)
def test_what_is_no_application_is_named(command: Command, name: str, said: str) -> None:
    refused = command("--app", name, "runs")
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "Traceback" not in refused.err


def test_an_application_that_fails_shows_where(command: Command) -> None:
    refused = command("--app", "tests.cli.program:broken", "runs")
    assert refused.code == 2
    assert "RuntimeError: the settings are not there" in refused.err
    assert "in broken" in refused.err
    assert "byline: tests.cli.program:broken could not be called" in refused.err


def test_a_module_that_this_installation_cannot_serve_says_what_to_install(tmp_path: Path) -> None:
    """Without its driver, a server's store or wake-up is refused in a line, though the module itself raises."""
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError('no such module', name='psycopg')\n")
    (tmp_path / "woken.py").write_text("from byline.queue.postgresql import PostgresqlWakeup\n")
    (tmp_path / "stored.py").write_text(
        "from byline import AgentRuntime\nruntime = AgentRuntime(store='postgresql://byline@localhost/x', agents=[])\n"
    )
    for module in ("woken", "stored"):
        refused = subprocess.run(
            [sys.executable, "-m", "byline", "--app", f"{module}:runtime", "runs"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == "byline: the driver of postgresql is not installed: pip install 'byline[postgresql]'\n"


def test_a_module_in_the_current_folder_is_found(tmp_path: Path) -> None:
    """As uvicorn does it: by a process of its own, whose folder is not where Python looks by itself."""
    source = "from byline import AgentRuntime\nruntime = AgentRuntime(store='sqlite:///own.db', agents=[])\n"
    (tmp_path / "own_application.py").write_text(source)
    (tmp_path / "half.py").write_text("import not_installed_anywhere\n")
    root = Path(__file__).resolve().parents[2]
    program = [sys.executable, "-c", "from byline.cli.app import main; main()"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BYLINE", "PYTHON"))}
    environment |= {"PYTHONPATH": str(root / "src"), "PYTHONSAFEPATH": "1"}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    found = run("--app", "own_application:runtime", "runs")
    assert (found.returncode, found.stdout, found.stderr) == (0, "There is no run.\n", "")
    half = run("--app", "half:runtime", "runs")
    assert half.returncode == 2
    assert "No module named 'not_installed_anywhere'" in half.stderr
    assert "half cannot be imported" in half.stderr


def test_a_store_that_cannot_be_used_is_said_in_a_line(command: Command, host: Host) -> None:
    (host.path.parent / "byline.db").write_text("This is no database. " * 100)
    refused = command("runs")
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.startswith("byline: the store sqlite:///")
    assert "is no SQLite database" in refused.err


def test_a_run_is_found_by_the_beginning_of_its_id(command: Command) -> None:
    first, second = (command("run", "editor", "See to it.", "--json").json()[0]["run_id"] for _ in range(2))
    assert command("show", first[:20], "--json").json()[0]["run_id"] == first
    assert command("show", second.replace("-", "").upper(), "--json").json()[0]["run_id"] == second
    both = command("show", first[:8])
    assert both.code == 2
    assert "more than one run begins with" in both.err
    assert command("show", first[:7]).code == 2
    assert command("show", "ffffffff").code == 1
    assert command("show", "00000000").code == 1
    assert command("show", "not-an-id").code == 2
