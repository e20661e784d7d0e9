"""The key file beside an embedded database file: made once, replaced whole, for its owner only."""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from byline.errors import ConfigurationError, StoreError
from byline.store.sealing import ENVIRONMENT_VARIABLE, KeyRing

Stamp: TypeAlias = tuple[int, int, int]
_MAX_BYTES: Final = 64 * 1024
"""Longest key file that is read; the longest that is written, of as many keys as a ring may have, is a sixth of it."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The file that holds a store's keys, as `KeyRing.parse` reads them.

    Attributes:
        path: where it is.
    """

    path: Path

    @classmethod
    def of(cls, database: Path) -> "KeyFile":
        """The key file of a database file."""
        return cls(database.with_name(f"{database.name}.key"))

    def load_or_make(self) -> KeyRing:
        """Read the file; make it, with one random key, if there is none.

        Raises:
            StoreError: others can read it, it is malformed, or it cannot be read or made. The message says what to do.
        """
        with self._usable():
            with suppress(FileNotFoundError):
                return self._load()
            self._link(KeyRing.generate())
            return self._load()

    def make(self, ring: KeyRing) -> None:
        """Make the file, with these keys.

        Raises:
            ConfigurationError: there is a file of this name.
            StoreError: it cannot be made.
        """
        with self._usable():
            if not self._link(ring):
                raise ConfigurationError(f"there is a file {self.path} already: a key is written to a new one")

    def load(self) -> KeyRing:
        """Read the file.

        Raises:
            StoreError: it is not there, others can read it, it is malformed, or it cannot be read.
        """
        with self._usable():
            return self._load()

    def stamp(self) -> Stamp | None:
        """What changes when the file is replaced; None if it is not there."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def replace(self, ring: KeyRing) -> None:
        """Put other keys into the file: whoever reads finds the old file or the new one, whole.

        Only one process may do so at a time: callers hold the database's write lock.

        Raises:
            StoreError: it cannot be replaced. It is as it was.
        """
        with self._usable():
            place = self.path.resolve(strict=True)
            before = place.stat()
            aside = place.with_name(f"{place.name}.new")
            aside.unlink(missing_ok=True)  # left by who was killed here
            try:
                _write(aside, ring, owner=(before.st_uid, before.st_gid))
                aside.replace(place)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
            _make_names_durable(place.parent)

    def _load(self) -> KeyRing:
        with self.path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise StoreError(
                    f"the key file {self.path} can be read by others (mode {mode:04o}): chmod 600 {self.path}"
                )
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise StoreError(f"the key file {self.path} is no key file: it is longer than {_MAX_BYTES} bytes")
        try:
            return KeyRing.parse(text.decode("ascii", "replace"), str(self.path))
        except ConfigurationError as error:
            raise StoreError(str(error)) from None

    def _link(self, ring: KeyRing) -> bool:
        """Write keys aside and link them into place. False: somebody came first, and theirs is a whole file."""
        aside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        try:
            _write(aside, ring)
            made = False
            with suppress(FileExistsError):
                os.link(aside, self.path)
                made = True
        finally:
            aside.unlink(missing_ok=True)
        _make_names_durable(self.path.parent)
        return made

    @contextmanager
    def _usable(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the key file {self.path} cannot be used ({error.strerror}): mend that, or set {ENVIRONMENT_VARIABLE}"
            ) from error


def _write(aside: Path, ring: KeyRing, owner: tuple[int, int] | None = None) -> None:
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        made = os.fstat(descriptor)
        if owner is not None and (made.st_uid, made.st_gid) != owner:
            os.fchown(descriptor, *owner)  # the workers' user, also where root adds a key
        file.write(ring.format() + "\n")
        file.flush()
        os.fsync(descriptor)


def _make_names_durable(folder: Path) -> None:
    """A name is durable before anything is sealed with a key of its file."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
