"""The terminal: colour where there is a screen, lines no wider than it, and questions."""

import io
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType

_BOLD, _DIM = "1", "2"
_SIGNS = {"+": "32", "-": "31"}  # green, red
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
        self.width = max(20, min(shutil.get_terminal_size().columns, _MAX_WIDTH))

    def heading(self, text: str) -> None:
        """Print what comes now."""
        print("\n" + "\n".join(self._in_colour(_BOLD, line) for line in self._wrapped(text, "")), flush=True)

    def say(self, text: str, *, indent: str = "  ") -> None:
        """Print a text, wrapped."""
        for line in _shown(text).splitlines() or [""]:
            print("\n".join(self._wrapped(line, indent)), flush=True)

    def diff(self, text: str) -> None:
        """Print a unified diff. A line that is too long goes on below, with the sign it began with."""
        code: str | None
        for number, line in enumerate(_shown(text).splitlines()):
            if number < 2 or line.startswith("@@"):  # what is compared, and where in it: these lines have no sign
                sign, rest, code = "", line, _DIM if line.startswith("@@") else _BOLD
            else:
                sign, rest, code = line[:1], line[1:], _SIGNS.get(line[:1])
            for part in self._wrapped(rest, f"  {sign}", break_words=True):
                print(self._in_colour(code, part), flush=True)

    def ask(self, question: str, choices: Mapping[str, str]) -> str:
        """Ask for one of several letters; the first one is the answer of `--yes`."""
        letters = list(choices)
        prompt = self._prompt(question, [f"{letter} = {meaning}" for letter, meaning in choices.items()])
        if self.yes:
            print(f"{prompt} {letters[0]} (--yes)", flush=True)
            return letters[0]
        while True:
            answer = input(f"{prompt} ").strip().lower()[:1]
            if answer in letters:
                return answer
            self.say(f"Please answer {', '.join(letters[:-1])} or {letters[-1]}.")

    def ask_words(self, question: str) -> str:
        """Ask for a line of text."""
        *above, prompt = self._wrapped(question, "")
        print(*(f"{line}\n" for line in above), sep="", end="", flush=True)
        return input(f"{prompt} ").strip()

    def _prompt(self, question: str, choices: list[str]) -> str:
        """Write a question in one line, or with a line for each choice if that is too long."""
        line = f"{question} {', '.join(choices)}:"
        if len(line) + len(" y (--yes)") <= self.width:
            return line
        below = [part for choice in choices for part in self._wrapped(choice, "  ")]
        return "\n".join([*self._wrapped(question, ""), *below, "Answer:"])

    def _wrapped(self, line: str, indent: str, *, break_words: bool = False) -> list[str]:
        """Wrap a line at its spaces. `break_words`: also in a word that is longer than the screen is wide."""
        deeper = indent + " " * min(len(line) - len(line.lstrip()), self.width // 2)
        return textwrap.wrap(
            line,
            self.width,
            initial_indent=indent,
            subsequent_indent=deeper,
            break_long_words=break_words,
            break_on_hyphens=False,
        ) or [indent.rstrip()]

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


@contextmanager
def interrupts_left_to_the_child() -> Generator[None]:
    """Let Ctrl-C, which a terminal sends to both processes, be answered by the one that asks."""

    def wait_on(signum: int, frame: FrameType | None) -> None: ...

    before = signal.signal(signal.SIGINT, wait_on)  # not SIG_IGN, which the child would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
