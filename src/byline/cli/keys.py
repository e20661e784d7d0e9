"""`byline keys`: list, add, activate, reseal and drop the keys of the store, beside running workers.

A key is printed in one place only: by `add --show-key`, where the keys come from elsewhere than a key file.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byline.cli.application import load
from byline.cli.as_json import print_json
from byline.cli.asking import confirm, shown_on
from byline.cli.db import as_sql, is_in_memory
from byline.cli.failing import ExitCode, UsageRefused
from byline.cli.options import AsJson
from byline.cli.progress import LOOK
from byline.cli.screen import Column, Screen, Style
from byline.errors import StoreError

if TYPE_CHECKING:
    from byline.store.keys import KeyAdministration, Resealed
    from byline.store.sealing import KeyRing

group = typer.Typer(help="Rotate the keys that the store seals with.", no_args_is_help=True, rich_markup_mode=None)

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as byline keys list shows it.")]


def list_keys(context: typer.Context, as_json: AsJson = False) -> None:
    """List the keys: which one seals, which are here, and how many values need each. Never the keys themselves."""
    with _opened(context) as keys:
        found = keys.list()
    if as_json:
        for key in found:
            print_json({"key_id": key.key_id, "state": key.state.value, "here": key.here, "values": key.values})
    else:
        rows = [(key.key_id, key.state.value, "yes" if key.here else "no", str(key.values)) for key in found]
        Screen().table((Column("KEY"), Column("STATE"), Column("HERE"), Column("VALUES")), rows)


def add(
    context: typer.Context,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Add the key in this file (id:base64), and make none."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Without a key file: write the new key to this new file, for its owner only."
        ),
    ] = None,
    show_key: Annotated[
        bool, typer.Option("--show-key", help="Without a key file: print the new key on stdout. It is a secret.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a key, for `activate`: into the key file. Without one, it is handed to you, to put where the keys are."""
    from byline.store.keyfile import KeyFile

    with _opened(context) as keys:
        _check_adding(keys.file, given, to=to, show_key=show_key)
        added = keys.add(None if given is None else _read(given))
        if to is not None:
            KeyFile(to).make(added.ring)
    file = added.file or to
    if as_json:
        secret = {"key": added.ring.format()} if show_key else {}
        print_json({"key_id": added.key_id, "file": None if file is None else str(file), **secret})
        return
    if show_key:
        Screen().whole(added.ring.format())
    screen = Screen(sys.stderr if show_key else sys.stdout)  # the key is alone on stdout
    where = "" if file is None else f" is in {file}"
    screen.whole(f"The key {added.key_id}{where or ' can be added'}. Nothing is sealed with it yet.")
    if added.file is None:
        screen.say("Put it into BYLINE_KEYS, or keys=, of every process, behind the others, and restart them.")
    screen.say(f"Next: byline keys activate {added.key_id}")


def activate(context: typer.Context, key_id: KeyId, as_json: AsJson = False) -> None:
    """Let a key seal from now on, in every process that has it. The others stay, and unseal."""
    with _opened(context) as keys:
        keys.activate(key_id)
    if as_json:
        print_json({"key_id": key_id, "state": "active"})
    else:
        screen = Screen()
        screen.say(f"The key {key_id} seals from now on.", style=Style.GOOD)
        screen.say("Next: byline keys reseal")


def reseal(context: typer.Context, as_json: AsJson = False) -> None:
    """Seal anew, with the active key, what is sealed with another. It ends with 4 if a value cannot be read."""
    with _opened(context) as keys:
        done = keys.reseal(_progress())
    if as_json:
        print_json({"total": done.total, "done": done.done, "moved_on": done.moved_on, "unreadable": done.unreadable})
    else:
        screen = Screen()
        screen.fields(
            [
                ("sealed anew", f"{done.done} of {done.total}"),
                ("changed meanwhile", str(done.moved_on)),
                ("unreadable", str(done.unreadable)),
            ]
        )
        if done.unreadable:
            screen.say("Unreadable values stay as they are: their key is not here, or they were damaged.")
        screen.say("Next: byline keys list; a key that no value needs can be dropped: byline keys drop ID")
    if done.unreadable:
        raise typer.Exit(ExitCode.ATTENTION)


def drop(
    context: typer.Context,
    key_id: KeyId,
    yes: Annotated[bool, typer.Option("--yes", help="Ask no question.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a key, for ever, and take it out of the key file. It is refused while a value needs it."""
    screen = shown_on(as_json=as_json)
    if not yes:
        if not screen.can_ask:
            raise UsageRefused("this asks before it drops a key, and there is no terminal to answer on: give --yes")
        screen.say("A backup of the database that was sealed with it opens only with it: keep a copy as long.")
        confirm(screen, f"Drop the key {key_id}?", no="Nothing was dropped.")
    with _opened(context) as keys:
        keys.drop(key_id)
        file = keys.file
    if as_json:
        print_json({"key_id": key_id, "state": "closed"})
    else:
        screen.say(f"The key {key_id} is dropped.", style=Style.GOOD)
        if file is None:
            screen.say("Take it out of BYLINE_KEYS, or keys=, of every process.")


@contextmanager
def _opened(context: typer.Context) -> "Generator[KeyAdministration]":
    """Open the application's store, if Byline keeps its keys.

    Raises:
        StoreError: it is another, or in memory.
    """
    application = load(context)
    store = as_sql(application.runtime.store)
    if store is None:
        raise StoreError("this application's store is one of its own: Byline does not keep its keys")
    if is_in_memory(store):
        raise StoreError("this store is in memory, and made anew each time: its key is gone with it")
    with application.opened():
        yield store.keys


def _check_adding(file: Path | None, given: Path | None, *, to: Path | None, show_key: bool) -> None:
    hands_out = show_key or to is not None
    if given is not None and hands_out:
        raise UsageRefused("--from adds a key that you have: --to and --show-key are for a new one")
    if file is not None and hands_out:
        raise UsageRefused(f"the key goes into the key file {file}: --to and --show-key are for where there is none")
    if file is None and given is None and not hands_out:
        raise UsageRefused(
            "the keys come from BYLINE_KEYS or keys=, and a new one is yours to put there: "
            "have it written to a new file with --to FILE, or printed with --show-key"
        )


def _read(file: Path) -> "KeyRing":
    from byline.store.keyfile import KeyFile

    if not file.exists():
        raise UsageRefused(f"there is no file {file}")
    return KeyFile(file).load()


def _progress() -> "Callable[[Resealed], None] | None":
    """Say now and then how far it has come; None where nobody reads."""
    screen = Screen(sys.stderr)
    if not screen.is_terminal:
        return None
    due = time.monotonic()

    def tell(so_far: "Resealed") -> None:
        nonlocal due
        if time.monotonic() >= due:
            screen.say(f"sealed anew: {so_far.done} of {so_far.total}", indent=2, style=Style.FAINT)
            due = time.monotonic() + LOOK

    return tell
