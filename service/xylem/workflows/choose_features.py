"""Find the features of texts, or the weight of a column, that predict best on held-out rows.

That is `features.kind=auto`, and `--text-column NAME=auto`.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadParameter, Crew, Dataset
from xylem.engine import (
    PARAMETERS,
    AutoParameters,
    FeatureParameters,
    PredictOptions,
    fit_featurizer,
    make_predictor,
    parameters_of,
)
from xylem.evaluation import KS, PredictedRows, Truth, ranking_metrics
from xylem.trainers import Trained, parse_parameters, train
from xylem_store import I64, DataInfo, Draft, Model, TrainerInfo, build_names, model_of

HELD_OUT_PARTS = 5
"""One of so many parts of the rows is held out."""

CANDIDATES: dict[str, dict[str, Any]] = {
    "words": {"kind": "tfidf"},
    "words+bigrams": {"kind": "tfidf", "bigrams": True},
    "words+chars": {"kind": "words+chars"},
    "words+bigrams+chars": {"kind": "words+chars", "bigrams": True},
    "chars": {"kind": "chars"},
}
"""The features that are tried; of those that are equally good the first one is chosen.

The cheapest come first, and characters beside words come before characters alone, which cost hardly
less.
"""

PLAIN = "words"
"""The candidate that is tried with each of LEADS, because it is cheap; the others are tried with
the best of them. To it, without first words, the chosen features are compared.
"""

LEADS = (0, 10, 20)
"""How many first words may count more; ADR 27 has what they gain."""

WEIGHTS = (1, 2, 3, 5)
"""The weights of a column that are tried."""

LEAD_WEIGHT = 3
"""How many times they count then."""

TRAINER = "label-tree"
"""One tree of this trainer judges the features, whatever trainer is to use them."""

TOLERANCE = 0.2
"""The first candidate whose precision is within this of the best one's, in percent, is chosen."""

ROWS_MIN = 50
BLOCKS = 50
"""The held-out rows are at least so many blocks of neighbouring rows."""

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
        facts = [tried._asdict().items() for tried in self.tried]
        tried = [
            {name: value for name, value in figures if name not in left_out} for figures in facts
        ]
        return {**self._asdict(), "tried": tried}


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
    held_out, training = _divided(dataset, auto.rows, seed, "features.kind")
    outcomes: dict[tuple[str, int], Tried] = {}
    n_trials = len(LEADS) + len(CANDIDATES) - 1

    def attempt(candidate: str, lead: int) -> None:
        on_progress("choose features", len(outcomes), n_trials)
        name = f"{candidate}, first {lead} words {LEAD_WEIGHT} times" if lead else candidate
        parameters = _parameters(candidate, lead, auto)
        outcomes[candidate, lead] = _try_features(name, parameters, training, held_out, seed, crew)

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
    outcome = outcomes[chosen, best_lead]
    choice = FeatureChoice(
        chosen=outcome.features,
        gained=round(outcome.precision - outcomes[PLAIN, 0].precision, 2),
        rows=held_out.n_rows + training.n_rows,
        held_out=held_out.n_rows,
        tried=list(outcomes.values()),
    )
    return _parameters(chosen, best_lead, auto), choice


def choose_weight(
    dataset: Dataset,
    parameters: FeatureParameters,
    seed: int,
    crew: Crew,
    on_progress: Callable[[str, int, int], None],
) -> tuple[Dataset, FeatureChoice]:
    """Return the rows with the weight of a field that predicts best, and what was tried.

    parameters  of the features; words if they are chosen later

    One field of the data set has no weight. Otherwise as `choose_features`.
    """
    assert dataset.fields.unweighted is not None
    name = dataset.fields.unweighted.name
    auto = parameters if isinstance(parameters, AutoParameters) else AutoParameters()
    if parameters is auto:
        parameters = _parameters(PLAIN, LEADS[1], auto)
    held_out, training = _divided(dataset, auto.rows, seed, f"text column {name!r}")
    tried: list[Tried] = []
    for weight in WEIGHTS:
        on_progress("choose weight", len(tried), len(WEIGHTS))
        parts = _weighted(training, weight), _weighted(held_out, weight)
        tried.append(_try_features(f"{name}={weight}", parameters, *parts, seed, crew))
    on_progress("choose weight", len(WEIGHTS), len(WEIGHTS))
    best = max(tried, key=lambda outcome: outcome.precision)  # the first of equals
    choice = FeatureChoice(
        chosen=best.features,
        gained=round(best.precision - tried[0].precision, 2),
        rows=held_out.n_rows + training.n_rows,
        held_out=held_out.n_rows,
        tried=tried,
    )
    return _weighted(dataset, WEIGHTS[tried.index(best)]), choice


def _weighted(dataset: Dataset, weight: int) -> Dataset:
    """Return rows in whose texts the field without a weight has one."""
    texts: Any = dataset.texts  # of class `WeighableText`
    return replace(
        dataset,
        texts=[text.weighted(weight) for text in texts],
        fields=dataset.fields.with_weight(weight),
    )


def _divided(dataset: Dataset, rows_max: int, seed: int, option: str) -> tuple[Dataset, Dataset]:
    """Return the rows that are held out, and those to learn from. Raises BadParameter."""
    if dataset.n_rows < ROWS_MIN:
        raise BadParameter(
            f"{option}: expected {ROWS_MIN} rows or more with auto, found {dataset.n_rows}"
        )
    held_out, training = divide(dataset.n_rows, rows_max, seed)
    return dataset.take(held_out), dataset.take(training)


def _parameters(candidate: str, lead: int, auto: AutoParameters) -> FeatureParameters:
    values = {**CANDIDATES[candidate], "lead": lead, "lead_weight": LEAD_WEIGHT}
    fields = PARAMETERS[values["kind"]].model_fields  # characters have no stems
    shared = auto.model_dump(include=fields.keys() - {"rows"})
    return parameters_of({**shared, **values})


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
    starts = rng.permutation(-(-n_rows // block))
    order = (starts[:, None] * block + np.arange(block)).ravel()
    order = order[order < n_rows]
    held_out = order[:n_held]
    remainder = order[n_held:]
    return np.sort(held_out), np.sort(rng.permutation(remainder)[: n_drawn - n_held])


def _try_features(
    name: str,
    parameters: FeatureParameters,
    training: Dataset,
    held_out: Dataset,
    seed: int,
    crew: Crew,
) -> Tried:
    """Return how good features are on the held-out rows, after training on the other rows."""
    assert held_out.texts is not None
    featurizer, rows = fit_featurizer(training, parameters, crew)
    trained = train(
        TRAINER, parse_parameters(TRAINER, []), rows, training.labels, seed, crew.threads
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
    for text in held_out.texts[:_TIMED_TEXTS]:
        start = time.perf_counter()
        featurizer.transform_texts([text])
        seconds.append(time.perf_counter() - start)
    features_us = 1e6 * median(seconds)
    total_us = round(features_us + search_us, 1)
    return Tried(name, round(precision, 2), total_us, round(features_us, 1), featurizer.n_features)


def trial_model(trained: Trained, n_labels: int, n_features: int, trainer: str = TRAINER) -> Model:
    """Return a trained ensemble as a model that is never published.

    Its labels are named by their ids.
    """
    draft = Draft(
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
    return model_of(draft)
