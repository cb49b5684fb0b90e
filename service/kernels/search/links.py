"""Links: from the margins of a node's children to the logarithms of their probabilities given the node.

Sources: Lin, Liu and Lin 2024 section 2 (squared hinge), PECOS (cubed hinge), Jasinska et al. 2016 section 5
(logistic). Scores are summed as logarithms, so the hinges need no exponential at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import nonallocating_inlined as inlined
from model_store.compiled.vectors import vadd, vbroadcast, vexp, vload, vlog, vmax, vmin, vmul, vstore, vsub
from model_store.ensemble import LANES

HINGE2 = 0
HINGE3 = 1
LOGISTIC = 2
SOFTMAX = 5

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_EXPONENT_MIN = np.float32(-87.0)
"""exp of this is the least normal float32, and nothing beside 1."""


_LEAST = np.float32(-1e4)
"""The least logarithm of a softmax: sums of them over a path stay numbers."""


@inlined
def _log_softmax(n_children: int, margins: NDArray[np.float32]) -> None:
    """Turn the margins of all children of a node into the logarithms of their softmax, at most 0.

    Infinite margins count as the largest numbers. Beside one that is no number none has a probability.
    """
    most = np.float32(np.finfo(np.float32).max / 4)
    greatest = -most
    for j in range(n_children):
        if np.isnan(margins[j]):
            margins[:n_children] = np.float32(np.nan)
            return
        margins[j] = min(max(margins[j], -most), most)
        greatest = max(greatest, margins[j])
    total = 0.0  # in double precision: a flat tree adds up 65,536
    for j in range(n_children):
        margins[j] = max(margins[j] - greatest, _LEAST)
        total += np.exp(margins[j])
    log_total = np.float32(np.log(total))
    for j in range(n_children):
        margins[j] = min(margins[j] - log_total, _ZERO)


@inlined
def log_links(link: int, n_children: int, margins: NDArray[np.float32]) -> None:
    """Turn each margin m into log p, in [-inf, 0], in place; a NaN stays one.

    link     one of model_store.ensemble.LINK_CODES: hinge2: -max(0, 1 - m)^2; hinge3: -max(0, 1 - m)^3;
             logistic: -log(1 + exp(-m)), to 1e-6 absolute or 1e-4 relative; softmax: m - log of the sum of
             exp(m) over the node's children, at least -1e4
    margins  float32[..], whole vectors of LANES, of which the first n_children elements count
    """
    if link == SOFTMAX:
        _log_softmax(n_children, margins)
        return
    zero, one = vbroadcast(_ZERO), vbroadcast(_ONE)
    for tile in range(0, n_children, LANES):
        margin = vload(margins, tile)
        if link == LOGISTIC:
            fade = vexp(vmax(vmin(margin, vsub(zero, margin)), vbroadcast(_EXPONENT_MIN)))
            log_p = vsub(vmin(zero, margin), vlog(vadd(one, fade)))
        else:
            short = vmax(zero, vsub(one, margin))
            log_p = vsub(zero, vmul(short, short))
            if link == HINGE3:
                log_p = vmul(log_p, short)
        vstore(margins, tile, log_p)
