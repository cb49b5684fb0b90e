"""Make models in this process: train, tune or combine them, or load them from a store."""

import re
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from xylem import serving, workflows
from xylem.base import BadParameter, load_extra, n_processors, progress_bar, unknown
from xylem.python.frames import TextColumn, columns_from_memory, fields_of
from xylem.python.from_memory import dataset_from_memory
from xylem.python.model import Model
from xylem.vocabulary import CombineRequest, combine_dataset, read_concepts
from xylem_store import build_names, model_of

COMBINE_OPTIONS = ("candidates", "beam_width", "ranker", "seed", "folds", "first_name")

SEARCH_OPTIONS = ("trainers", "metric", "minutes", "trials", "folds", "study", "seed")

# The prefixes of parameters that are not the trainer's; on the command line a dot follows them.
_PREFIX = re.compile("^(features|vectors)_")


def train(
    instances: Any,
    labels: Iterable[Iterable[str | int]] | Any = None,
    *,
    trainer: str = "label-tree",
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    seed: int = 0,
    threads: int | None = None,
    text_column: TextColumn = None,
    label_column: str | None = None,
    vectors: Any = None,
    progress: bool = True,
    **parameters: Any,
) -> Model:
    """Train a model; nothing is written.

    instances     a list of texts; a list of mappings from feature names to numbers; a matrix,
                  sparse or an array, with a row for each instance; or, with text_column, a frame of
                  pandas, polars or pyarrow, a Hugging Face data set, or a list of mappings from
                  fields to texts
    labels        a list of names or whole numbers for each instance, a dictionary from these to
                  their weights, or an indicator matrix, sparse or an array, with a column for each
                  label
    trainer       a trainer of `xylem train`; docs/trainers/ describes them
    weights       the type of stored weights: float32, bfloat16 or int8
    threads       the number of cores if left out
    text_column   the column of a frame with the texts, or a list of columns, or of keys of
                  mappings, which are joined; "title=3" counts three times, "title=auto" as often as
                  is best for held-out rows. The model has them as its fields
    label_column  the column of a frame with a list of label names in each row, in place of labels
    vectors       a vector beside each text, as a sentence encoder makes it: float[n, numbers]; the
                  model then takes such vectors wherever it takes texts
    sample_weight  the weight of each instance: one of weight 2 counts as two, one of weight 0 as
                  none (docs/rows.md)
    progress      whether a progress bar is shown, on a terminal and in a notebook
    parameters    those of the trainer by their names, those of the features as `features_NAME` (for
                  `features.NAME`), and of vectors as `vectors_NAME`; `encoder` is a folder with a
                  sentence encoder in ONNX, which makes the vectors of texts, here and wherever the
                  model is asked (extra encoder)

    Raises `xylem.errors.BadInput` for instances or labels that cannot be used; it names the row,
    from 0.
    """
    encoder = parameters.pop("encoder", None)
    sample_weight = parameters.pop("sample_weight", None)
    request = workflows.TrainRequest(
        trainer=trainer,
        data=Path(),
        parameters=_parameters(parameters),
        weights=weights,
        seed=seed,
        threads=_cores(threads),
    )
    dataset = dataset_from_memory(
        *columns_from_memory(instances, labels, text_column, label_column),
        fields=fields_of(text_column),
        vectors=vectors,
        sample_weight=sample_weight,
    )
    chosen = None
    if encoder is not None and vectors is not None:
        raise BadParameter("encoder cannot be used with vectors")
    if encoder is not None:
        if not isinstance(encoder, str | PathLike):
            raise BadParameter(f"encoder: expected the path of a folder, found {encoder!r:.80}")
        folder = Path(encoder)
        arrays, _ = load_extra("encoder").read_encoder(folder)
        chosen = request.chosen().encoded_by(folder.name, arrays)
    with progress_bar(progress) as show:
        return Model(model_of(workflows.train_dataset(dataset, request, show, chosen=chosen)))


def tune(
    instances: Any,
    labels: Any = None,
    *,
    valid: tuple[Any, ...] | None = None,
    threads: int | None = None,
    text_column: TextColumn = None,
    label_column: str | None = None,
    vectors: Any = None,
    progress: bool = True,
    **options: Any,
) -> Model:
    """Search for the best trainer and parameters; return a model trained with them on all rows.

    valid    instances and labels on which trials are measured, and their vectors if there are
             vectors. Left out: a fifth of the rows is held out, or with `folds` each of that many
             parts in turn
    vectors  a vector beside each text, as in `train`; `sample_weight` is taken as there, too, and
             no `encoder`
    options  those of `xylem tune`: trainers ("label-tree", "plt"), metric ("P@5"), minutes (10),
             trials (1000), folds (1), study (a file), seed (0); all others are parameters of
             trainers, named as in `train`, that are fixed and not searched

    The other arguments are as in `train`. `report["trials"]` of the model lists the trials, the
    best first. Their figures are too optimistic, because they are the best of many trials. Needs
    the extra tune. Raises `xylem.errors.BadInput`.
    """
    parameter_search = load_extra("search")
    sample_weight = options.pop("sample_weight", None)
    if "encoder" in options:
        raise BadParameter("encoder cannot be used with tune: encode the texts, and give vectors")
    search_options = {name: options.pop(name) for name in SEARCH_OPTIONS if name in options}
    for name, kind in (("trainers", tuple), ("study", Path)):
        if name in search_options:
            search_options[name] = kind(search_options[name])
    fixed = [
        f"{name}={value if isinstance(value, str) else dumps(value)}"
        for name, value in _parameters(options).items()
    ]
    request = parameter_search.SearchRequest(
        Path(), **search_options, fixed=fixed, threads=_cores(threads)
    )
    dataset = dataset_from_memory(
        *columns_from_memory(instances, labels, text_column, label_column),
        fields=fields_of(text_column),
        vectors=vectors,
        sample_weight=sample_weight,
    )
    validation = (
        None
        if valid is None
        else dataset_from_memory(
            *columns_from_memory(valid[0], valid[1], text_column, label_column),
            build_names(dataset.names),
            None if dataset.rows is None else dataset.rows.n_features,
            vectors=next(iter(valid[2:]), None),
        )
    )
    with progress_bar(progress) as show:
        trials = parameter_search.search(request, show, (dataset, validation))
        return Model(
            model_of(workflows.train_dataset(dataset, request.training(trials[0]), show)),
            extra_report={
                "metric": request.metric,
                "trials": [trial._asdict() for trial in trials],
            },
        )


def combine(
    members: Sequence[Model],
    vocabulary: str | PathLike[str] | None,
    instances: Any,
    labels: Iterable[Iterable[str]] | Any = None,
    *,
    language: str | None = None,
    by: str = "uri",
    rerank: tuple[Any, ...] | None = None,
    text_column: TextColumn = None,
    label_column: str | None = None,
    progress: bool = True,
    **options: Any,
) -> Model:
    """Combine models, and the names of a vocabulary, into a model that ranks their proposals.

    members     1 to 8 models of any trainers, from `train` or `load`
    vocabulary  a file of concepts with their names: SKOS (.ttl, .rdf, .nt), .tsv or .csv; None:
                labels are proposed by the members only
    instances, labels  30 rows or more that no member was trained on, as in `train`
    language    the language of the names that are used; all languages if left out
    by          what the labels of the members are: "uri", "notation", or a language, if they are
                the names in that language
    rerank      instances and labels that the first member was trained on, and their vectors if it
                takes vectors; the instances that are near to a text help to rank its candidates, if
                that improves the ranking
    vectors     a vector beside each text, for the members that take vectors, as in `train`
    options     those of `xylem combine`: candidates (50), beam_width (None: chosen on the rows),
                ranker ("auto"), seed (0), folds (False: if True, members that were trained on
                these rows are trained again by folds)

    `report["combined"]` of the model has its figures by cross-validation on the rows, and those of
    each member. Needs the extra sklearn. Raises `xylem.errors.BadInput` for models or rows that
    cannot be combined.
    """
    vectors = options.pop("vectors", None)
    if unknown_options := [name for name in options if name not in COMBINE_OPTIONS]:
        raise BadParameter(
            f"{unknown_options[0]}: {unknown(unknown_options[0], COMBINE_OPTIONS, 'name')}"
        )
    trainer_of = workflows.part_trainer if options.pop("folds", False) else None
    request = CombineRequest(
        [], Path(), language=language, key_kind=by, trainer_of=trainer_of, **options
    )
    concepts = (
        None
        if vocabulary is None
        else read_concepts(Path(vocabulary), language, by, first_name=request.first_name)
    )
    dataset = dataset_from_memory(
        *columns_from_memory(instances, labels, text_column, label_column), vectors=vectors
    )
    trained_on = (
        None
        if rerank is None
        else dataset_from_memory(rerank[0], rerank[1], vectors=next(iter(rerank[2:]), None))
    )
    parts = [member._as_member(f"member{number}") for number, member in enumerate(members, 1)]
    with progress_bar(progress) as show:
        draft, _ = combine_dataset(parts, concepts, dataset, trained_on, request, show)
        return Model(model_of(draft))


def load(store: str | PathLike[str], name: str) -> Model:
    """Load a version from a store.

    name  `NAME`, whose version `latest` is loaded, or `NAME@VERSION`, where VERSION is a number or
          an alias

    Raises `xylem.errors.StoreError`.
    """
    model, separator, version = name.partition("@")
    return Model(
        serving.store_of(Path(store)).open(model, version if separator else "latest"),
        Path(store).absolute(),
    )


def _parameters(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the names of the command line: `features_x` becomes `features.x`."""
    return {_PREFIX.sub(r"\1.", name): value for name, value in keywords.items()}


def _cores(threads: int | None) -> int:
    return index(threads or n_processors())
