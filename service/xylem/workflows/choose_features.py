"""Find the features of texts that predict best on held-out training rows, and the weight of the
vectors beside them, or of a field.

That is `features.kind=auto`, `vectors.weight=auto`, and `--text-column NAME=auto`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple, Self

import numpy as np

from xylem.base import BadParameter, Crew, Dataset
from xylem.engine import (
    PARAMETERS,
    AutoParameters,
    FeatureParameters,
    PredictOptions,
    VectorParameters,
    fit_featurizer,
    make_predictor,
    parameters_of,
)
from xylem.evaluation import KS, PredictedRows, Truth, ranking_metrics
from xylem.trainers import Trained, parse_parameters, train
from xylem_store import I64, DataInfo, Draft, Model, TrainerInfo, build_names, model_of

HELD_OUT_PARTS = 5  # one of this many parts of the rows is held out

# The features that are tried; of those that are equally good the first one is chosen.
#
# The cheapest come first, and characters beside words come before characters alone, which cost
# hardly less.
CANDIDATES: dict[str, dict[str, Any]] = {
    "words": {"kind": "tfidf"},
    "words+bigrams": {"kind": "tfidf", "bigrams": True},
    "words+chars": {"kind": "words+chars"},
    "words+bigrams+chars": {"kind": "words+chars", "bigrams": True},
    "chars": {"kind": "chars"},
}

# The candidate that is tried with each of LEADS, because it is cheap; the others are tried with
# the best of them. To it, without first words, the chosen features are compared.
PLAIN = "words"

LEADS = (0, 10, 20)  # how many first words may count more; ADR 28 has what they gain

FIELD_WEIGHTS = (1, 2, 3, 5)  # the weights of a column that are tried

LEAD_WEIGHT = 3  # how many times they count then

# One tree of this trainer judges the features, whatever trainer is to use them.
TRAINER = "label-tree"

# The first candidate whose precision is within this of the best one's, in percent, is chosen.
TOLERANCE = 0.2

WEIGHTS = (0.3, 0.6, 1.0)  # the weights of vectors that are tried, besides none

# The least rows for trials, and the most that are drawn for those of weights.
ROWS_MIN = 50
ROWS_MAX = 50_000

BLOCKS = 50  # the held-out rows are at least this many blocks of neighbouring rows

_TIMED_TEXTS = 200


class Tried(NamedTuple):
    """The measurements of one candidate on the held-out rows.

    precision    the mean of P@1, P@3 and P@5, in percent
    us_per_row   microseconds from a text to its labels on one thread
    features_us  the part of them that goes into making the features
    n_features   number of features of the rows that were tried
    """

    features: str
    precision: float
    us_per_row: float
    features_us: float
    n_features: int


class FeatureChoice(NamedTuple):
    """The features or the weight of a column that were chosen, and the candidates.

    gained    the precision beyond that of words alone, or of weight 1, in percent of the same rows
    rows      number of rows that were used
    held_out  number of them that were held out
    """

    chosen: str
    gained: float
    rows: int
    held_out: int
    tried: list[Tried]

    def as_json(self, *, times: bool = True) -> dict[str, Any]:
        """Return it as `xylem train --json` has it.

        times  whether measured times are included; without them the same data and seed give the
               same values
        """
        left_out = () if times else ("us_per_row", "features_us")
        return {
            **self._asdict(),
            "tried": [
                {name: value for name, value in tried._asdict().items() if name not in left_out}
                for tried in self.tried
            ],
        }


class _TrialRows(NamedTuple):
    """The rows that candidates learn from, and those that are held out to measure them."""

    training: Dataset
    held_out: Dataset

    def map(self, change: Callable[[Dataset], Dataset]) -> Self:
        """Return both parts changed."""
        return self._replace(training=change(self.training), held_out=change(self.held_out))

    def choice(self, chosen: Tried, plain: Tried, tried: list[Tried]) -> FeatureChoice:
        """Return what is reported of a choice among the candidates that were tried on the rows.

        plain  the candidate that the chosen one is compared with
        """
        return FeatureChoice(
            chosen=chosen.features,
            gained=round(chosen.precision - plain.precision, 2),
            rows=self.held_out.n_rows + self.training.n_rows,
            held_out=self.held_out.n_rows,
            tried=tried,
        )


def choose_features(
    dataset: Dataset,
    auto: AutoParameters,
    seed: int,
    crew: Crew,
    on_progress: Callable[[str, int, int], None],
) -> tuple[FeatureParameters, FeatureChoice]:
    """Return the parameters of the features that predict best, and what was tried.

    At most `auto.rows` rows are drawn; a fifth of them is held out. Deterministic but for the
    times. Raises BadParameter for instances that are not texts and for fewer than ROWS_MIN rows.
    """
    if dataset.texts is None:
        raise BadParameter(
            "features.kind: expected texts with auto, found instances of another kind"
        )
    rows = _trial_rows("features.kind", _without_vectors(dataset), auto.rows, seed)
    outcomes: dict[tuple[str, int], Tried] = {}
    n_trials = len(LEADS) + len(CANDIDATES) - 1

    def attempt(candidate: str, lead: int) -> None:
        on_progress("choose features", len(outcomes), n_trials)
        outcomes[candidate, lead] = _try_features(
            f"{candidate}, first {lead} words {LEAD_WEIGHT} times" if lead else candidate,
            _parameters(candidate, lead, auto),
            rows,
            seed,
            crew,
        )

    for lead in LEADS:
        attempt(PLAIN, lead)
    best_lead = max(LEADS, key=lambda lead: outcomes[PLAIN, lead].precision)  # the first of equals
    for candidate in CANDIDATES:
        if candidate != PLAIN:
            attempt(candidate, best_lead)
    on_progress("choose features", n_trials, n_trials)
    best = max(outcome.precision for outcome in outcomes.values())
    chosen = next(
        candidate
        for candidate in CANDIDATES
        if outcomes[candidate, best_lead].precision >= best - TOLERANCE
    )
    return _parameters(chosen, best_lead, auto), rows.choice(
        outcomes[chosen, best_lead], outcomes[PLAIN, 0], list(outcomes.values())
    )


def choose_weight(
    dataset: Dataset,
    parameters: FeatureParameters,
    vectors: VectorParameters,
    earlier: FeatureChoice | None,
    seed: int,
    crew: Crew,
    on_progress: Callable[[str, int, int], None],
) -> tuple[VectorParameters | None, FeatureChoice]:
    """Return the parameters of vectors with the best of WEIGHTS, None if they gain nothing.

    parameters  of the features of the texts
    earlier     how these were chosen, if they were; the weights that were tried are added

    At most ROWS_MAX rows are drawn. Raises BadParameter for fewer than ROWS_MIN rows.
    """
    rows = _trial_rows("vectors.weight", dataset, ROWS_MAX, seed)
    candidates = [vectors.model_copy(update={"weight": weight}) for weight in WEIGHTS]
    tried = list[Tried]()
    for candidate in [None, *candidates]:
        on_progress("choose weight", len(tried), len(candidates) + 1)
        tried.append(
            _try_features("no vectors", parameters, rows.map(_without_vectors), seed, crew)
            if candidate is None
            else _try_features(
                f"vectors at weight {candidate.weight}", parameters, rows, seed, crew, candidate
            )
        )
    on_progress("choose weight", len(tried), len(tried))
    best = max(tried, key=lambda outcome: outcome.precision)  # the first of equals
    if best.precision - tried[0].precision <= TOLERANCE:
        best = tried[0]  # without vectors a search costs less
    choice = rows.choice(best, tried[0], tried)
    if earlier is not None:
        choice = choice._replace(
            chosen=f"{earlier.chosen}, {choice.chosen}",
            gained=round(earlier.gained + choice.gained, 2),
            tried=[*earlier.tried, *tried],
        )
    return [None, *candidates][tried.index(best)], choice


def choose_field_weight(
    dataset: Dataset,
    parameters: FeatureParameters,
    seed: int,
    crew: Crew,
    on_progress: Callable[[str, int, int], None],
) -> tuple[Dataset, FeatureChoice]:
    """Return the rows with the best of FIELD_WEIGHTS for their field without a weight.

    parameters  of the features of the texts; words are tried if they are chosen later

    Vectors beside the texts are left out. Otherwise as `choose_weight`.
    """
    assert dataset.fields.unweighted is not None
    name = dataset.fields.unweighted.name
    if isinstance(parameters, AutoParameters):
        parameters = _parameters(PLAIN, LEADS[1], parameters)
    rows = _trial_rows(f"text column {name!r}", _without_vectors(dataset), ROWS_MAX, seed)
    tried = list[Tried]()
    for weight in FIELD_WEIGHTS:
        on_progress("choose weight of a field", len(tried), len(FIELD_WEIGHTS))
        tried.append(
            _try_features(
                f"{name}={weight}",
                parameters,
                rows.map(partial(_weighted, weight=weight)),
                seed,
                crew,
            )
        )
    on_progress("choose weight of a field", len(tried), len(tried))
    best = max(tried, key=lambda outcome: outcome.precision)  # the first of equals
    return _weighted(dataset, FIELD_WEIGHTS[tried.index(best)]), rows.choice(best, tried[0], tried)


def _without_vectors(dataset: Dataset) -> Dataset:
    return replace(dataset, vectors=None)


def _weighted(dataset: Dataset, weight: int) -> Dataset:
    """Return rows in whose texts the field without a weight has one."""
    texts: Any = dataset.texts  # of class `WeighableText`
    return replace(
        dataset,
        texts=[text.weighted(weight) for text in texts],
        fields=dataset.fields.with_weight(weight),
    )


def _trial_rows(parameter: str, dataset: Dataset, rows_max: int, seed: int) -> _TrialRows:
    """Return the rows of all trials of a choice. Raises BadParameter.

    parameter  the parameter that is chosen, for the error
    """
    if dataset.n_rows < ROWS_MIN:
        raise BadParameter(
            f"{parameter}: expected {ROWS_MIN} rows or more with auto, found {dataset.n_rows}"
        )
    held_out, training = divide(dataset.n_rows, rows_max, seed)
    return _TrialRows(dataset.take(training), dataset.take(held_out))


def _parameters(candidate: str, lead: int, auto: AutoParameters) -> FeatureParameters:
    values = {**CANDIDATES[candidate], "lead": lead, "lead_weight": LEAD_WEIGHT}
    names = PARAMETERS[values["kind"]].model_fields.keys() - {"rows"}  # characters have no stems
    return parameters_of({**auto.model_dump(include=names), **values})


def divide(n_rows: int, rows_max: int, seed: int) -> tuple[I64, I64]:
    """Return the rows that are held out, a fifth of those drawn, and the rows to learn from.

    Both are ascending. Neighbours in a file are often alike, such as the packages of one program.
    Therefore rows are held out in blocks: otherwise features that only recognise a neighbour would
    win.
    """
    rng = np.random.default_rng(seed)
    n_drawn = min(n_rows, rows_max)
    n_held = n_drawn // HELD_OUT_PARTS
    block = max(1, n_held // BLOCKS)
    order = (rng.permutation(-(-n_rows // block))[:, None] * block + np.arange(block)).ravel()
    order = order[order < n_rows]
    return np.sort(order[:n_held]), np.sort(rng.permutation(order[n_held:])[: n_drawn - n_held])


def _try_features(
    name: str,
    parameters: FeatureParameters,
    rows: _TrialRows,
    seed: int,
    crew: Crew,
    vectors: VectorParameters | None = None,
) -> Tried:
    """Return how good features are on the held-out rows, after training on the other rows."""
    training, held_out = rows
    assert held_out.texts is not None
    featurizer, features = fit_featurizer(training, parameters, crew, vectors)
    trained = train(
        TRAINER, parse_parameters(TRAINER, []), features, training.labels, seed, crew.threads
    )
    predictor = make_predictor(
        trial_model(trained, training.labels.n_labels, featurizer.n_features)
    )
    held_rows = featurizer.transform_dataset(held_out)
    options = PredictOptions(top_r=min(max(KS), training.labels.n_labels))
    # this compiles the kernels, so that no compilation is timed
    predictor.predict(held_rows.cut(0, 1), options, 1)
    start = time.perf_counter()
    predictions = predictor.predict(held_rows, options, 1)
    search_us = 1e6 * (time.perf_counter() - start) / held_out.n_rows
    figures = ranking_metrics(
        PredictedRows(predictions.ptr, predictions.labels),
        Truth(held_out.labels, held_out.unknown_labels),
        np.ones(held_out.labels.n_labels),
    )
    precision = sum(figures[f"P@{k}"] for k in KS) / len(KS)
    seconds = []
    for i, text in enumerate(held_out.texts[:_TIMED_TEXTS]):
        vector = None if held_out.vectors is None else held_out.vectors[i : i + 1]
        start = time.perf_counter()
        featurizer.transform_with_vectors([text], vector)
        seconds.append(time.perf_counter() - start)
    features_us = 1e6 * median(seconds)
    return Tried(
        features=name,
        precision=round(precision, 2),
        us_per_row=round(features_us + search_us, 1),
        features_us=round(features_us, 1),
        n_features=featurizer.n_features,
    )


def trial_model(trained: Trained, n_labels: int, n_features: int, trainer: str = TRAINER) -> Model:
    """Return a trained ensemble as a model that is never published.

    Its labels are named by their ids.
    """
    return model_of(
        Draft(
            kind=trained.kind,
            link=trained.link,
            weights="float32",
            n_features=n_features,
            trainer=TrainerInfo(trainer, trained.parameters),
            seed=0,
            data=DataInfo("trial", 1, "0" * 64),
            metrics={},
            features={"kind": "raw"},
            ensemble=trained.ensemble,
            labels=build_names(map(str, range(n_labels))),
            extra=trained.extra,
        )
    )
