"""`python -m examples.newsroom`: the story of one run, in a terminal. `make demo` plays it."""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from byline import BylineError
from examples.newsroom.application import SITE_FILE
from examples.newsroom.crash import Moment
from examples.newsroom.crash_story import tell_with_crash
from examples.newsroom.seed import build_site
from examples.newsroom.story import Stage, exit_code, tell
from examples.quickstart.terminal import Terminal, calmly


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and tell the story. Returns the exit code: 0 if the run was completed."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.newsroom",
        description="An agent changes a newspaper's site: it asks, a person decides, the writes are announced.",
        epilog="With make: `make demo`, `make demo ARGS=--yes`, `make demo ARGS=--crash`, `make demo MODEL=NAME`.",
    )
    parser.add_argument("--yes", action="store_true", help="ask no one: approve what the agent wants to write")
    parser.add_argument(
        "--crash",
        nargs="?",
        const=Moment.BEFORE,
        type=Moment,
        choices=list(Moment),
        help="kill the process inside the write of the first draft, before the site's commit (default) or after it",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="a model such as openai:gpt-5 (its key is in the environment); else a script"
    )
    parser.add_argument(
        "--dir", type=Path, help="an empty or new folder that keeps the files (default: a temporary one)"
    )
    options = parser.parse_args(arguments)
    yes: bool = options.yes
    crash: Moment | None = options.crash
    model: str | None = options.model or None
    kept: Path | None = options.dir
    if not yes and not sys.stdin.isatty():
        unasked = '"--crash --yes"' if crash else "--yes"
        parser.error(
            "this asks before each write, and there is no terminal to answer on;"
            f" make demo ARGS={unasked} asks no one, and approves everything"
        )
    if crash and sys.platform == "win32":
        parser.error("--crash sends SIGKILL, which Windows does not have")
    if kept is not None and kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
        parser.error(f"--dir {kept}: this is no empty folder")
    return calmly(lambda: _play(kept, Terminal(yes=yes), crash, model))


def _play(kept: Path | None, terminal: Terminal, crash: Moment | None, model: str | None) -> int:
    with _folder(kept) as folder:
        stage = Stage(build_site(folder / SITE_FILE), terminal, model)
        try:
            code = exit_code(tell(stage)) if crash is None else tell_with_crash(stage, crash)
        except BylineError as error:  # such as a model's name or key that cannot work
            terminal.say(f"{type(error).__name__}: {error}")
            return 1
        if kept is not None:
            terminal.heading(f"The files are in {kept}. To look at the site:")
            terminal.say(f"NEWSROOM_DIR={shlex.quote(str(folder))} make newsroom")
    return code


@contextmanager
def _folder(kept: Path | None) -> Generator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="byline-newsroom-") as name:
            yield Path(name)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()


if __name__ == "__main__":
    sys.exit(main())
