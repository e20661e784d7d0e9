"""The key file beside an embedded database file: made once, by whichever process is first, for its owner only."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from byline.errors import ConfigurationError, StoreError
from byline.store.sealing import ENVIRONMENT_VARIABLE, KeyRing


def key_file_of(database: Path) -> Path:
    """Where the keys of a database file are."""
    return database.with_name(f"{database.name}.key")


def load_or_make(path: Path) -> KeyRing:
    """Read the key file; make it, with one random key, if there is none.

    Raises:
        StoreError: others can read it, it is malformed, or it cannot be read or made. The message says what to do.
    """
    try:
        with suppress(FileNotFoundError):
            return _load(path)
        _make(path)
        return _load(path)
    except OSError as error:
        raise StoreError(
            f"the key file {path} cannot be used ({error.strerror}): mend that, or set {ENVIRONMENT_VARIABLE}"
        ) from error


def _load(path: Path) -> KeyRing:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if os.name == "posix" and mode & 0o077:
            raise StoreError(f"the key file {path} can be read by others (mode {mode:04o}): chmod 600 {path}")
        text = file.read()
    try:
        return KeyRing.parse(text.decode("ascii", "replace"), str(path))
    except ConfigurationError as error:
        raise StoreError(str(error)) from None


def _make(path: Path) -> None:
    """Write a key aside and link it into place: who comes second finds a whole file and takes that one."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(KeyRing.generate().format() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink()
    # The name is durable before anything is sealed with the key.
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
