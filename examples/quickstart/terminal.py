"""The terminal: colour where there is a screen, lines no wider than it, and questions."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable

_COLOURS = {"+": "32", "-": "31", "@": "36"}
_MAX_WIDTH = 100


class Terminal:
    """Prints, and asks unless `--yes` answers for everybody."""

    def __init__(self, *, yes: bool) -> None:
        self.yes = yes
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a screen without typographer's quotes shows question marks
        self.colour = (
            sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "dumb")
        )
        self.width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)

    def heading(self, text: str) -> None:
        """Print what comes now."""
        print(f"\n{self._in_colour('1', text)}", flush=True)

    def say(self, text: str, *, indent: str = "  ") -> None:
        """Print a text, wrapped."""
        for line in _shown(text).splitlines() or [""]:
            print("\n".join(self._wrapped(line, indent)), flush=True)

    def diff(self, text: str) -> None:
        """Print a unified diff. A line that is too long goes on below, with the sign it began with."""
        for number, line in enumerate(_shown(text).splitlines()):
            is_heading = number < 2 or line.startswith("@@")
            sign, rest = ("", line) if is_heading else (line[:1], line[1:])
            for part in self._wrapped(rest, f"  {sign}"):
                print(self._in_colour(_COLOURS.get(line[:1]), part), flush=True)

    def ask(self, question: str, answers: str) -> str:
        """Ask for one of several letters; the first one is the answer of `--yes`."""
        if self.yes:
            print(f"{question} {answers[0]} (--yes)", flush=True)
            return answers[0]
        while True:
            answer = input(f"{question} ").strip().lower()[:1]
            if answer and answer in answers:
                return answer
            print(f"  Please answer {', '.join(answers[:-1])} or {answers[-1]}.", flush=True)

    def ask_words(self, question: str) -> str:
        """Ask for a line of text."""
        return input(f"{question} ").strip()

    def _wrapped(self, line: str, indent: str) -> list[str]:
        deeper = indent + " " * (len(line) - len(line.lstrip()))
        return textwrap.wrap(line, max(self.width, 20), initial_indent=indent, subsequent_indent=deeper) or [
            indent.rstrip()
        ]

    def _in_colour(self, code: str | None, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour and code else text


def _shown(text: str) -> str:
    """Show control characters as what they are: a model's words must not steer the approver's screen."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def calmly(play: Callable[[], int]) -> int:
    """Return the exit code of a story, also of one that was broken off at a question."""
    try:
        return play()
    except KeyboardInterrupt:
        print("\nStopped. What was not decided was not written.", flush=True)
        return 130  # as a shell says it: ended by SIGINT
    except EOFError:
        print("\nNo answer. What was not decided was not written.", flush=True)
        return 1
    except BrokenPipeError:  # who read along, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit fails no more
        return 1
