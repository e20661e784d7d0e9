"""The transcripts of docs/command-line.md, played on a fresh newsroom.

A block that begins with `$ byline` is played, in order, in one folder, on a screen of 100 columns. `$RUN` is the run
that was started last, `$DIGEST` the digest shown last, `$KEY` the key shown last and `$OLD_KEY` the one shown first.
Paths are shown without the folder. `python -m tests.cli.transcript` writes what is printed now into
the document.
"""

import os
import re
import shlex
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from byline.cli.app import app

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
ENVIRONMENT = {"BYLINE_APP": "examples.newsroom.application:runtime", "COLUMNS": "100"}
_BLOCK = re.compile(r"^```console\n\$ (byline .*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_VARYING = (
    (re.compile(_UUID), "{id}"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}\b"), "{short id}"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "{digest}"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "{key id}"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?"), "{time}"),
    (re.compile(r"seconds=\d+\.\d+"), "seconds={seconds}"),
    (re.compile(r"digest=[0-9a-f]+…"), "digest={digest}…"),
)


def play(document: str, folder: Path) -> str:
    """Return the document with what its commands print now."""
    known = {"RUN": "", "DIGEST": "", "KEY": "", "OLD_KEY": ""}

    def played(block: "re.Match[str]") -> str:
        line = block[1]
        for name, value in known.items():
            line = line.replace(f"${name}", value)
        _, *arguments = shlex.split(line)
        result = CliRunner(env=ENVIRONMENT | {"NEWSROOM_DIR": str(folder)}).invoke(app, arguments, prog_name="byline")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if arguments[0] == "run":
            known["RUN"] = re.findall(_UUID, result.output)[0]
        known["DIGEST"] = re.findall(r"\b[0-9a-f]{64}\b", f"{known['DIGEST']} {result.output}")[-1:][0]
        if arguments[0] == "keys" and (shown := re.findall(r"\b[0-9a-f]{8}\b", result.output)):
            known["KEY"], known["OLD_KEY"] = shown[-1], known["OLD_KEY"] or shown[0]
        output = result.output.replace(f"{folder}/", "")
        return f"```console\n$ {block[1]}\n{output}```"

    return _BLOCK.sub(played, document)


def structure(document: str) -> str:
    """Return the document without what differs from one play to the next."""
    for pattern, name in _VARYING:
        document = pattern.sub(name, document)
    return document


def commands(document: str) -> set[str]:
    """Which commands the document plays."""
    return {block[1].split()[1] for block in _BLOCK.finditer(document)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TZ"] = "UTC"
        DOCUMENT.write_text(play(DOCUMENT.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
