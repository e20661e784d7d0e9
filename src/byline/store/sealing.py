"""Sealed values: what a run needs in order to go on, readable only with a key and only where it stands (P23).

A sealed value is a format byte, the key's id, a nonce and the AES-GCM ciphertext. Its associated
data names the table, the column, the run and the row, so that it cannot be moved. Neither an
error nor a `repr` here shows a key or what was sealed.
"""

import base64
import binascii
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, Self
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from byline.errors import ConfigurationError, KeyMissing, SealBroken

ENVIRONMENT_VARIABLE = "BYLINE_KEYS"
KEY_BYTES = 32
MAX_KEYS = 100
"""Most keys that are read, or added to: a store asks for all of them in one statement."""
_FORMAT = b"\x01"
_NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, eq=False)
class KeyRing:
    """The keys that a process has for a store. Every one unseals; the store knows which one seals.

    Attributes:
        keys: 32 random bytes by key id (1 to 64 letters, digits, `.`, `_` or `-`).
        active: the id of the key that seals in a store that knows no key yet, and of several where it does not matter.

    Raises:
        ConfigurationError: a key or an id is malformed, or `active` is none of them.
    """

    keys: Mapping[str, bytes] = field(repr=False)
    active: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", MappingProxyType(dict(self.keys)))
        for key_id, key in self.keys.items():
            if not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError("a key's id is 1 to 64 letters, digits, '.', '_' or '-'")
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise ConfigurationError(f"a key is {KEY_BYTES} bytes long")
        if self.active not in self.keys:
            raise ConfigurationError("the active key is none of the keys")

    def with_key(self, key_id: str, key: bytes) -> "KeyRing":
        """A ring that has one more key.

        Raises:
            ConfigurationError: it has as many as are read.
        """
        if len(self.keys) >= MAX_KEYS:
            raise ConfigurationError(f"there are {MAX_KEYS} keys: drop those that no value needs")
        return KeyRing({**self.keys, key_id: key}, self.active)

    def without(self, key_id: str) -> "KeyRing":
        """A ring that has one key less, and another active one if it was that.

        Raises:
            ConfigurationError: it is the only one.
        """
        left = {other: key for other, key in self.keys.items() if other != key_id}
        if not left:
            raise ConfigurationError(f"the key {key_id!r} is the only one")
        return KeyRing(left, self.active if self.active in left else next(iter(left)))

    def led_by(self, key_id: str) -> "KeyRing":
        """The same keys, and this one active."""
        return KeyRing(self.keys, key_id)

    def __repr__(self) -> str:
        return f"KeyRing(ids={sorted(self.keys)}, active={self.active!r})"

    @classmethod
    def generate(cls) -> Self:
        """Make a ring of one random key with a random id, so that a wrong key file is found by its id."""
        key_id = secrets.token_hex(4)
        return cls({key_id: secrets.token_bytes(KEY_BYTES)}, key_id)

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read `id:base64[,id:base64…]`; the first one is active. `source` is named in errors.

        Raises:
            ConfigurationError: the text is malformed. The message names the entry by its number: what stands where an
                id should may well be the key.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.strip().split(",", MAX_KEYS), 1):
            if number > MAX_KEYS:
                raise ConfigurationError(f"{source}: there are more than {MAX_KEYS} keys")
            key_id, colon, value = entry.strip().partition(":")
            if not colon or not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(f"{source}: entry {number} is not id:base64")
            if key_id in keys:
                raise ConfigurationError(f"{source}: the id of entry {number} is there twice")
            try:
                keys[key_id] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ConfigurationError(f"{source}: the key of entry {number} is no base64") from None
            if len(keys[key_id]) != KEY_BYTES:
                raise ConfigurationError(f"{source}: the key of entry {number} is not {KEY_BYTES} bytes long")
        return cls(keys, next(iter(keys)))

    def format(self) -> str:
        """Write the keys as `parse` reads them. The text is a secret."""
        ids = [self.active, *(key_id for key_id in self.keys if key_id != self.active)]
        return ",".join(f"{key_id}:{base64.b64encode(self.keys[key_id]).decode()}" for key_id in ids)

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the keys from `BYLINE_KEYS` (`id:base64[,id:base64…]`, the first is active); None if it is not set.

        Raises:
            ConfigurationError: it is malformed.
        """
        text = os.environ.get(ENVIRONMENT_VARIABLE)
        return cls.parse(text, ENVIRONMENT_VARIABLE) if text else None


class Seals(Protocol):
    """What seals values."""

    def seal(self, data: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Seal a value for one place, as `Sealer` does."""
        ...


class Unseals(Protocol):
    """What unseals values."""

    def unseal(self, sealed: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Unseal a value of one place, as `Sealer` does."""
        ...


class Sealer:
    """Seals with the active key of one ring, and unseals with all of them. Safe to use from any thread."""

    def __init__(self, ring: KeyRing) -> None:
        self._active = ring.active
        self._ciphers = {key_id: AESGCM(key) for key_id, key in ring.keys.items()}

    def seal(self, data: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Seal a value for one place: the `owner` is the row's own id within the run."""
        header = header_of(self._active)
        nonce = os.urandom(_NONCE_BYTES)
        place = _place(header, table, column, run_id, owner)
        return header + nonce + self._ciphers[self._active].encrypt(nonce, data, place)

    def unseal(self, sealed: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Unseal a value of one place.

        Raises:
            KeyMissing: its key is not here.
            SealBroken: it was changed, stands elsewhere than where it was sealed, or its key is another of that id.
        """
        where = f"the {column} of run {run_id}" if table == "run" else f"the {column} of a {table} of run {run_id}"
        key_id = key_id_of(sealed)
        if key_id is None:
            raise SealBroken(f"{where} is no sealed value")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise KeyMissing(
                f"{where} is sealed with the key {key_id!r}, which is not here: "
                f"restore the key file, or add the key to {ENVIRONMENT_VARIABLE}"
            )
        header = header_of(key_id)
        nonce, ciphertext = sealed[len(header) :][:_NONCE_BYTES], sealed[len(header) + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, ciphertext, _place(header, table, column, run_id, owner))
        except (InvalidTag, ValueError):
            raise SealBroken(
                f"{where} does not open with the key {key_id!r}: it was changed or moved, or this key is another"
            ) from None


def is_key_id(text: str) -> bool:
    """Whether a key may have this id: 1 to 64 letters, digits, `.`, `_` or `-`."""
    return _KEY_ID.fullmatch(text) is not None


def key_id_of(sealed: bytes) -> str | None:
    """The id of the key that a value is sealed with; None if it is no sealed value."""
    if sealed[:1] != _FORMAT or len(sealed) < 2:
        return None
    try:
        key_id = sealed[2 : 2 + sealed[1]].decode("ascii")
    except UnicodeDecodeError:
        return None
    return key_id if _KEY_ID.fullmatch(key_id) else None


def header_of(key_id: str) -> bytes:
    """What a value begins with that is sealed with this key, and no other."""
    return _FORMAT + bytes([len(key_id)]) + key_id.encode("ascii")


def _place(header: bytes, table: str, column: str, run_id: UUID, owner: object) -> bytes:
    # No part can hold the separator, so no two places share their bytes.
    return header + "\x1f".join(("", table, column, run_id.hex, str(owner))).encode()
