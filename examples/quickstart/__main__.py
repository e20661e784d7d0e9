"""`python -m examples.quickstart`: the story of one run, in a terminal."""

import argparse
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.quickstart.crash import tell_with_crash
from examples.quickstart.seed import build_site
from examples.quickstart.story import exit_code, tell
from examples.quickstart.terminal import Terminal, calmly


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and tell the story. Returns the exit code: 0 if the run was completed."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.quickstart",
        description="An agent changes a website: it asks, a person decides, the writes are announced.",
        epilog='With make: `make quickstart`, `make quickstart ARGS=--yes`, `make quickstart ARGS="--crash --yes"`.',
    )
    parser.add_argument("--yes", action="store_true", help="ask no one: approve what the agent wants to write")
    parser.add_argument("--crash", action="store_true", help="kill the process inside the second write, and recover")
    parser.add_argument(
        "--dir", type=Path, help="an empty or new folder that keeps the files (default: a temporary one)"
    )
    options = parser.parse_args(arguments)
    yes: bool = options.yes
    crash: bool = options.crash
    kept: Path | None = options.dir
    if not yes and not sys.stdin.isatty():
        unasked = '"--crash --yes"' if crash else "--yes"
        parser.error(
            "this asks before each write, and there is no terminal to answer on;"
            f" make quickstart ARGS={unasked} asks no one, and approves everything"
        )
    if crash and sys.platform == "win32":
        parser.error("--crash sends SIGKILL, which Windows does not have")
    if kept is not None and kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
        parser.error(f"--dir {kept}: this is no empty folder")
    return calmly(lambda: _play(kept, Terminal(yes=yes), crash=crash))


def _play(kept: Path | None, terminal: Terminal, *, crash: bool) -> int:
    with _folder(kept) as folder:
        site = build_site(folder / "site.db")
        code = tell_with_crash(site, folder, terminal) if crash else exit_code(tell(site, folder, terminal))
    if kept is not None:
        terminal.heading(f"The files are in {kept}")
    return code


@contextmanager
def _folder(kept: Path | None) -> Generator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="byline-quickstart-") as name:
            yield Path(name)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()


if __name__ == "__main__":
    sys.exit(main())
