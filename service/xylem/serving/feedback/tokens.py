"""prediction_id: a signed token that contains what was predicted, so that no log is needed.

Layout, before base64 (URL-safe, no padding): a head of 29 bytes (format 1, 4 bytes of the model's
hash, version, epoch, expiry in seconds since 1970, a serial number; little-endian), the labels as
int32, and 16 bytes of a MAC. The MAC is BLAKE2b with a key of 32 bytes, which is a MAC by itself
(RFC 7693) and faster than HMAC.
"""

import binascii
import hashlib
import hmac
import os
import struct
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xylem.serving.kernels.blake2 import MAC_BYTES, absorb_key
from xylem.serving.kernels.seals import Seal
from xylem_store import I32

_HEAD = struct.Struct("<B4sIQIQ")
_FORMAT = 1
_KEY_BYTES = 32
_FROM_URL_SAFE = bytes.maketrans(b"-_+/", b"+/!!")

SKEW_SECONDS = 300  # the clocks of two replicas may differ by this much


class Token(NamedTuple):
    """The content of a prediction_id.

    labels  int32[..]: the labels that were predicted, ascending, without repeats
    """

    version: int
    epoch: int
    labels: I32


class TokenFault(Exception):
    """A prediction_id that cannot be used.

    reason  forged, other-model, expired or future
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Tokens:
    """Signs and reads prediction_ids. Thread-safe. The kernel `prediction_json` writes them.

    keys          the first key signs, all keys are accepted: to change keys, put a new one in front
    seconds_max   how long feedback to a prediction is accepted
    """

    def __init__(self, keys: Sequence[bytes], seconds_max: int) -> None:
        self._keys = [
            hashlib.blake2b(key, digest_size=_KEY_BYTES, person=b"xylem-token").digest()
            for key in keys
        ]
        self._keyed = absorb_key(np.frombuffer(self._keys[0], np.uint64).copy())
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._serial = int.from_bytes(os.urandom(7), "little")

    def seal(self, model: bytes, version: int, epoch: int) -> Seal:
        """Return what the kernel needs to sign tokens now.

        model  the `model_hash` of the model's name
        """
        return Seal(
            self._keyed,
            int.from_bytes(model, "little"),
            version,
            epoch,
            int(time.time()) + self._seconds_max,
        )

    def serials(self, n: int) -> int:
        """Return the first of n serial numbers that no other token has."""
        with self._lock:
            self._serial += n
            return self._serial - n

    def read(self, text: str, model: bytes, now: float | None = None) -> Token:
        """Return the content of a token. Raises TokenFault.

        It takes the same time for every forged MAC.

        model   the `model_hash` of the model's name
        now     seconds since 1970; None: the time now
        """
        body = self._verified(text)
        form, signed_model, version, epoch, expiry, _ = _HEAD.unpack_from(body)
        now = time.time() if now is None else now
        if form != _FORMAT:
            raise TokenFault(
                "forged", f"expected a prediction_id of format {_FORMAT}, found {form}"
            )
        if signed_model != model:
            raise TokenFault(
                "other-model", "expected a prediction_id of this model, found another model's"
            )
        if expiry + SKEW_SECONDS < now:
            raise TokenFault(
                "expired", f"expected feedback within {self._seconds_max} seconds, found it late"
            )
        if expiry > now + self._seconds_max + SKEW_SECONDS:
            raise TokenFault("future", "expected a prediction of the past, found one of the future")
        return Token(
            version,
            epoch,
            np.unique(np.frombuffer(body, "<i4", offset=_HEAD.size).astype(np.int32)),
        )

    def _verified(self, text: str) -> bytes:
        """Return the bytes of a token without its MAC. Raises TokenFault if the MAC is wrong."""
        fault = TokenFault(
            "forged", "expected a prediction_id of an answer of this service, found another text"
        )
        try:
            data = text.encode("ascii").translate(_FROM_URL_SAFE)
            raw = binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
        except (UnicodeEncodeError, binascii.Error):
            raise fault from None
        # the unused bits of the last character must be 0, so that a token has one spelling
        if binascii.b2a_base64(raw, newline=False).rstrip(b"=") != data:
            raise fault
        body = raw[:-MAC_BYTES]
        if len(body) < _HEAD.size or (len(body) - _HEAD.size) % 4:
            raise fault
        macs = [
            hashlib.blake2b(body, digest_size=MAC_BYTES, key=key).digest() for key in self._keys
        ]
        if not any(hmac.compare_digest(raw[-MAC_BYTES:], expected) for expected in macs):
            raise fault
        return body


def model_hash(model: str) -> bytes:
    """Return the 4 bytes that identify a model in a token."""
    return hashlib.blake2b(model.encode(), digest_size=4, person=b"xylem-model").digest()
