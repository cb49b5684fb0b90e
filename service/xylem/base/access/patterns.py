"""ModelPatterns: the models that a key may see, or that need no key, by patterns of their names."""

import fnmatch
import re
from collections.abc import Iterable

from xylem.base.errors import BadParameter
from xylem_store import is_model

PATTERNS_MAX = 100  # the most patterns of a key: all keys are in the memory of each process

PATTERN_LENGTH_MAX = 128  # twice the longest name of a model

_PATTERN = re.compile(r"(?:[a-z0-9._*?-]|\[!?[a-z0-9._-]+\])+", re.ASCII)

_VERDICTS_MAX = 1024  # the most names whose verdict is remembered; clients may send any names


class ModelPatterns:
    """Patterns as `shop-*`, as `fnmatch` defines them. A name is in it if one of them matches.

    verdicts  whether some names are in it, which were looked up before
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        # without a pattern nothing matches, while an empty regular expression matches everything
        self._match = re.compile("|".join(map(fnmatch.translate, self.patterns)) or "(?!)").match
        self.verdicts: dict[str | None, bool] = {}

    def __contains__(self, model: str) -> bool:
        verdict = self.verdicts.get(model)
        if verdict is None:
            # a name of another form is the name of no model, and may be too long to be matched
            verdict = is_model(model) and self._match(model) is not None
            if len(self.verdicts) >= _VERDICTS_MAX:
                self.verdicts.clear()
            self.verdicts[model] = verdict
        return verdict


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise BadParameter for too many patterns, for none, and for one that no name can match."""
    patterns = tuple(patterns)
    if not 1 <= len(patterns) <= PATTERNS_MAX:
        raise BadParameter(
            f"models: expected 1 to {PATTERNS_MAX} patterns of names, found {len(patterns)}"
        )
    for pattern in patterns:
        if len(pattern) > PATTERN_LENGTH_MAX or not _PATTERN.fullmatch(pattern):
            raise BadParameter(
                f"models: expected patterns of at most {PATTERN_LENGTH_MAX} characters, which may "
                f"be a-z, 0-9, . _ - and *, ?, [...], found {pattern!r:.100}"
            )
