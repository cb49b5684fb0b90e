"""What kernels need to sign predictions: the seal of their ids, and the thresholds of now."""

from typing import NamedTuple

from xylem_store import F32_1, U64, U64_1, handle


class Seal(NamedTuple):
    """The fields that all tokens of an answer have in common.

    keyed    uint64[8]: the state of the MAC after it has absorbed the key
    model    the model's hash, 4 bytes
    version  the model's version
    epoch    the epoch of the thresholds
    expiry   when the token expires, in seconds since 1970
    """

    keyed: U64
    model: int
    version: int
    epoch: int
    expiry: int


@handle
class FastPresent(NamedTuple):
    """The thresholds and the seal that answers use, until both are replaced by another struct.

    thresholds                      as `write_predictions` takes them
    log_threshold                   the tuned thresholds, as in a Search; [0] if requests for them
                                    are not answered
    limit                           the most labels of a row at the tuned thresholds
    keyed, model, version, expiry   the fields of a Seal
    """

    thresholds: F32_1
    log_threshold: F32_1
    limit: int
    keyed: U64_1
    model: int
    version: int
    expiry: int
