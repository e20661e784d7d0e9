"""Where a command writes: streams that may be closed, full, or read by nobody any more."""

import os
import sys
from contextlib import suppress
from typing import Final, TextIO

STANDARD: Final = 3
"""Standard input, output and error are the descriptors below this one."""


class OutputLost(Exception):
    """What a command said could not be written. What it had done by then stays done."""


def write(stream: TextIO, text: str) -> None:
    """Write a text at once.

    Raises:
        OutputLost: nobody reads the stream any more (`| head`), or it is full. It swallows what follows.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        _swallow(stream)
        raise OutputLost(f"the output cannot be written ({error.strerror})") from None


def _swallow(stream: TextIO) -> None:
    """Lead a stream to nowhere: what is left in its buffer would make the interpreter fail when it ends."""
    with suppress(OSError):  # a stream without a descriptor is nobody's output
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def open_closed_streams() -> None:
    """Lead standard streams that were closed (`>&-`) to nowhere.

    Python has None in their place, and the next file that is opened would get their number: a database, for one, in
    which then stands what something prints.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < STANDARD:
        pass
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, stream)
