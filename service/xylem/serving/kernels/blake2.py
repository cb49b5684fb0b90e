"""Keyed BLAKE2b with a digest of 16 bytes: the MAC of prediction ids, computed without the
interpreter's lock.

Source: RFC 7693. Only what prediction ids need is implemented: one key for many messages, so its
block is absorbed once.
"""

import numpy as np

from xylem_store import U8, U64, inlined, kernel, nonallocating_inlined

MAC_BYTES = 16
BLOCK_BYTES = 128
_WORDS = 16

_IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint8,
)

# The four words that each step of a round mixes: columns first, then diagonals.
_MIXED = np.array(
    [
        [j, 4 + (j + k) % 4, 8 + (j + 2 * k) % 4, 12 + (j + 3 * k) % 4]
        for k in (0, 1)
        for j in range(4)
    ],
    np.uint8,
)

_64 = np.uint64(64)
_ROTATIONS = 32, 24, 16, 63


@nonallocating_inlined
def _rotate_right(word: np.uint64, n_bits: int) -> np.uint64:
    return (word >> np.uint64(n_bits)) | (word << (_64 - np.uint64(n_bits)))


@nonallocating_inlined
def _compress(state: U64, words: U64, n_bytes: int, is_last: bool, v: U64) -> None:
    """Absorb a block of 16 words into the state (section 3.2).

    n_bytes  the number of bytes of this block and all blocks before it, without the padding; the
             algorithm mixes it into the state
    v        uint64[16], overwritten
    """
    for i in range(8):
        v[i] = state[i]
        v[i + 8] = _IV[i]
    v[12] ^= np.uint64(n_bytes)
    if is_last:
        v[14] = ~v[14]
    for turn in range(12):
        for step in range(8):
            a = _MIXED[step, 0]
            b = _MIXED[step, 1]
            c = _MIXED[step, 2]
            d = _MIXED[step, 3]
            v[a] = v[a] + v[b] + words[_SIGMA[turn % 10, 2 * step]]
            v[d] = _rotate_right(v[d] ^ v[a], _ROTATIONS[0])
            v[c] = v[c] + v[d]
            v[b] = _rotate_right(v[b] ^ v[c], _ROTATIONS[1])
            v[a] = v[a] + v[b] + words[_SIGMA[turn % 10, 2 * step + 1]]
            v[d] = _rotate_right(v[d] ^ v[a], _ROTATIONS[2])
            v[c] = v[c] + v[d]
            v[b] = _rotate_right(v[b] ^ v[c], _ROTATIONS[3])
    for i in range(8):
        state[i] ^= v[i] ^ v[i + 8]


@kernel
def absorb_key(key: U64) -> U64:
    """Return the state, uint64[8], that has absorbed a key of 32 bytes, uint64[4]."""
    block = np.zeros(_WORDS, np.uint64)
    v = np.empty(_WORDS, np.uint64)
    block[:4] = key
    state = _IV.copy()
    state[0] ^= np.uint64(0x01010000 | 32 << 8 | MAC_BYTES)
    _compress(state, block, BLOCK_BYTES, False, v)
    return state


@inlined
def append_mac(keyed: U64, message: U8, n_bytes: int) -> None:
    """Write the MAC of message[:n_bytes] behind it.

    keyed    uint64[8], as `absorb_key` returns it
    message  uint8[..], with room for whole blocks and the MAC
    n_bytes  > 0

    Cost: about 1 microsecond a block.
    """
    state = keyed.copy()
    v = np.empty(_WORDS, np.uint64)
    n_blocks = (n_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES
    message[n_bytes : n_blocks * BLOCK_BYTES] = 0
    words = message[: n_blocks * BLOCK_BYTES].view(np.uint64)
    for block in range(n_blocks):
        is_last = block + 1 == n_blocks
        counted = BLOCK_BYTES + (n_bytes if is_last else (block + 1) * BLOCK_BYTES)
        _compress(state, words[block * _WORDS : (block + 1) * _WORDS], counted, is_last, v)
    message[n_bytes : n_bytes + MAC_BYTES] = state[:2].view(np.uint8)
