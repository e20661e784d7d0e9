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
from typing import Self
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from byline.errors import ConfigurationError, KeyMissing, SealBroken

ENVIRONMENT_VARIABLE = "BYLINE_KEYS"
KEY_BYTES = 32
_FORMAT = b"\x01"
_NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, eq=False)
class KeyRing:
    """The keys of a store: `active` seals, every one unseals.

    Attributes:
        keys: 32 random bytes by key id (1 to 64 letters, digits, `.`, `_` or `-`).
        active: the id of the key that seals from now on.

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
                raise ConfigurationError(f"the key {key_id!r} is not {KEY_BYTES} bytes long")
        if self.active not in self.keys:
            raise ConfigurationError(f"the active key {self.active!r} is none of the keys")

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
            ConfigurationError: the text is malformed. The message names the id, never the value.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.strip().split(","), 1):
            key_id, colon, value = entry.strip().partition(":")
            # What has no colon may well be a key without its id: it is not printed.
            if not colon or not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(f"{source}: entry {number} is not id:base64")
            if key_id in keys:
                raise ConfigurationError(f"{source}: the key {key_id!r} is there twice")
            try:
                keys[key_id] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ConfigurationError(f"{source}: the key {key_id!r} is no base64") from None
        try:
            return cls(keys, next(iter(keys)))
        except ConfigurationError as error:
            raise ConfigurationError(f"{source}: {error}") from None

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


class Sealer:
    """Seals and unseals with the keys of one ring. Safe to use from any thread."""

    def __init__(self, ring: KeyRing) -> None:
        self._active = ring.active
        self._ciphers = {key_id: AESGCM(key) for key_id, key in ring.keys.items()}

    def seal(self, data: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Seal a value for one place: the `owner` is the row's own id within the run."""
        header = _header(self._active)
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
        header = _header(key_id)
        nonce, ciphertext = sealed[len(header) :][:_NONCE_BYTES], sealed[len(header) + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, ciphertext, _place(header, table, column, run_id, owner))
        except (InvalidTag, ValueError):
            raise SealBroken(
                f"{where} does not open with the key {key_id!r}: it was changed or moved, or this key is another"
            ) from None


def key_id_of(sealed: bytes) -> str | None:
    """The id of the key that a value is sealed with; None if it is no sealed value."""
    if sealed[:1] != _FORMAT or len(sealed) < 2:
        return None
    try:
        key_id = sealed[2 : 2 + sealed[1]].decode("ascii")
    except UnicodeDecodeError:
        return None
    return key_id if _KEY_ID.fullmatch(key_id) else None


def _header(key_id: str) -> bytes:
    return _FORMAT + bytes([len(key_id)]) + key_id.encode("ascii")


def _place(header: bytes, table: str, column: str, run_id: UUID, owner: object) -> bytes:
    # No part can hold the separator, so no two places share their bytes.
    return header + "\x1f".join(("", table, column, run_id.hex, str(owner))).encode()
