"""The request for a training and its parameters, checked together before anything is read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, InstanceOf

from xylem.base import (
    DEFAULT_COLUMNS,
    BadParameter,
    Crew,
    Dataset,
    DirectOptions,
    OnProgress,
    ParameterFault,
    Parameters,
    T,
    TableColumns,
    TrainingFacts,
    crew_of,
    json_object,
    scalar_of,
    split_items,
    stored_steps,
)
from xylem.datasets import STDIN, read_dataset
from xylem.engine import (
    FILE_SUFFIX,
    PREFIX,
    WORD_FORMS,
    Featurizer,
    VectorParameters,
    WordParameters,
    check_features,
    fit_forms,
)
from xylem.trainers import TRAINERS, ClassifierParameters, check_spreads, trainer
from xylem_store import EncoderArrays, Store, is_model


class TrainRequest(DirectOptions):
    """A request for a training: what to train on, and how. The options say how.

    data        a file, or STDIN: lines that are learnt as they arrive
    parameters  "key=value" each, or the values of a JSON object by name; those whose names begin
                with "features." are the features', others the trainer's
    columns     of data and valid, if they are tables
    base        "NAME" or "NAME@VERSION", a version that the training continues from: its features,
                parameters and trees stay, and what it stores is stored again
    extends     whether labels that the base lacks are added, learnt from `data`
    rows        with `extends`: files of the rows that the base was trained on; none: the rows that
                the base stores
    origin      fields of the version's origin (`xylem_store.origin`), such as its job; the parent
                is the version that `latest` named before, unless it is given here
    latest      whether `latest` moves to the published version; to a first version it always does
    made_for    an id for which only one version is published: if it exists already, no other is
                made
    steps       a directory in which finished steps are kept until the version is published; not for
                a stream
    """

    trainer: str
    data: Path
    valid: Path | None = None
    parameters: Sequence[str] | Mapping[str, Any] = ()
    columns: InstanceOf[TableColumns] = DEFAULT_COLUMNS
    threads: int = 1
    extends: bool = False
    rows: Sequence[Path] = ()
    origin: Mapping[str, Any] = Field(default_factory=dict)
    latest: bool = True
    made_for: str | None = None
    steps: Path | None = None

    @property
    def is_stream(self) -> bool:
        """Return whether the rows are not held in memory."""
        return self.stream or self.data == STDIN

    def read(self, on_progress: OnProgress, file: Path | None = None) -> Dataset:
        """Return the rows of the data, or of another file of the same form. Raises BadInput."""
        return read_dataset(
            self.data if file is None else file,
            label_names_file=self.label_names,
            columns=self.columns,
            on_progress=partial(on_progress, "read"),
        )

    def chosen(self) -> "Chosen":
        """Return the parameters. Raises BadParameter, which lists everything that is wrong."""
        return (
            from_json(self.trainer, dict(self.parameters))
            if isinstance(self.parameters, Mapping)
            else parse(self.trainer, self.parameters)
        )

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """Yield the crew that runs the steps; finished steps are deleted if the block ends well."""
        with ExitStack() as stack:
            crew = stack.enter_context(crew_of(self.threads, self.ray))
            if self.steps is not None:
                crew = stack.enter_context(stored_steps(crew, self.steps, self.resume))
            yield crew

    def check(self, chosen: "Chosen") -> None:
        """Raise BadParameter for the first option that the others, or the trainer, do not allow."""
        for fault in self.faults(self.facts(chosen)):
            raise BadParameter.from_faults([fault])
        if self.ray is not None or self.resume:
            check_spreads(self.trainer, chosen.trainer)

    def facts(self, chosen: "Chosen") -> TrainingFacts:
        """Return what the rules of the options look at."""
        plan = trainer(self.trainer).plan(chosen.trainer)
        learners = [spec.name for spec in TRAINERS.values() if spec.plan(spec.parameters())]
        return TrainingFacts(
            options=dict(self),
            trainer=self.trainer,
            has_valid=self.valid is not None,
            from_stdin=self.data == STDIN,
            is_stream=self.is_stream,
            in_blocks=self.stream and isinstance(chosen.trainer, ClassifierParameters),
            scores_sum_to_one=self.trainer in TRAINERS and TRAINERS[self.trainer].is_exact,
            passes=0 if plan is None else plan.passes,
            can_add_passes=plan is None or plan.is_open,
            learners=f"{', '.join(learners)}, or plt with solver=sgd",
        )


class Chosen(NamedTuple):
    """The parameters of a training.

    trainer   of the trainer's class
    features  values by name, without their prefix; the kind of features they belong to may be known
              only with the data
    vectors   parameters of vectors beside texts; None: those of the default, if there are vectors
    encoder_name  the sentence encoder that makes the vectors of texts, by its name in the store
    encoder   this encoder, a TextEncoder, once it was opened
    """

    trainer: Parameters
    features: dict[str, Any]
    vectors: VectorParameters | None = None
    encoder_name: str | None = None
    encoder: Any = None

    def encoded_by(self, name: str, arrays: EncoderArrays) -> "Chosen":
        """Return the parameters with an opened encoder. Raises BadParameter and BadModel."""
        encoder = (self.vectors or VectorParameters()).encoder(name, arrays)
        encoder.workspace()  # what is wrong is reported before data are read
        return self._replace(encoder=encoder)

    def opened_from(self, store: Store | None) -> "Chosen":
        """Return the parameters with the encoder that they name, opened from a store.

        Raises EncoderNotFound, BadModel, and BadParameter if its library is missing, or there is no
        store.
        """
        if self.encoder_name is None:
            return self
        if store is None:
            raise BadParameter(
                "features.encoder: expected a store that has the encoder, found none: in Python "
                "give train(encoder=FOLDER), or the vectors of the texts"
            )
        return self.encoded_by(self.encoder_name, store.encoders.open(self.encoder_name))

    def with_features_of(self, featurizer: Featurizer) -> "Chosen":
        """Return the parameters with the features of a featurizer, which need not be chosen.

        Its weight of vectors is taken over too; if it has no vectors, no encoder makes them.
        """
        parameters = featurizer.parameters
        chosen = self._replace(features={"kind": parameters.kind, **parameters.model_dump()})
        if not featurizer.tail_features:
            return chosen._replace(vectors=None, encoder_name=None, encoder=None)
        weight = featurizer.config()[f"{VectorParameters.name_prefix}weight"]
        return chosen._replace(
            vectors=(self.vectors or VectorParameters()).model_copy(update={"weight": weight})
        )


def parse(name: str, items: Sequence[str]) -> Chosen:
    """Return the parameters that a command line's `key=value` items choose for trainer `name`.

    Items whose names begin with "features." are the features', others the trainer's. Raises
    BadParameter for a trainer that is unknown; otherwise its `faults` are all that is wrong with
    the parameters. Raises BadData for a file of stop words that cannot be used.
    """
    parameters = trainer(name).parameters
    values = _split_values(split_items(items))
    return _check_together(
        lambda: parameters.from_text(values.trainer),
        {key: scalar_of(text) for key, text in values.features.items()},
        {key: scalar_of(text) for key, text in values.vectors.items()},
        values.encoder,
    )


def from_json(name: str, values: object) -> Chosen:
    """Return the parameters that a JSON object chooses: `{"trees": 3, "features.ngram_max": 2}`.

    Raises as `parse`. The object may come from another machine, so it cannot name files, such as
    one of stop words.
    """
    parameters = trainer(name).parameters
    divided = _split_values(json_object(values))
    stop_words = divided.features.get("stop_words")
    if isinstance(stop_words, str) and stop_words.endswith(FILE_SUFFIX):
        raise BadParameter.from_faults(
            [
                ParameterFault(
                    f"{PREFIX}stop_words",
                    "expected the code of a language, found a file, which only xylem train and "
                    "estimate take",
                )
            ]
        )
    return _check_together(
        lambda: parameters.from_json(divided.trainer),
        divided.features,
        divided.vectors,
        divided.encoder,
    )


class _Values(NamedTuple):
    """Values of parameters by name; those of features and of vectors are without their prefix."""

    trainer: dict[str, Any]
    features: dict[str, Any]
    vectors: dict[str, Any]
    encoder: list[str]


def _split_values(values: Mapping[str, Any]) -> _Values:
    divided = _Values({}, {}, {}, [])
    for name, value in values.items():
        if name == f"{PREFIX}encoder":
            if not isinstance(value, str) or not is_model(value):
                raise BadParameter.from_faults(
                    [
                        ParameterFault(
                            name,
                            f"expected the name of an encoder of the store, found {value!r:.80}",
                        )
                    ]
                )
            divided.encoder.append(value)
        elif name.startswith(PREFIX):
            divided.features[name.removeprefix(PREFIX)] = value
        elif name.startswith(VectorParameters.name_prefix):
            divided.vectors[name.removeprefix(VectorParameters.name_prefix)] = value
        else:
            divided.trainer[name] = value
    return divided


def _check_together(
    make: Callable[[], Parameters],
    features: dict[str, Any],
    vector_values: dict[str, Any],
    encoders: list[str],
) -> Chosen:
    faults: list[ParameterFault] = []

    def checked(part: Callable[[], T]) -> T | None:
        try:
            return part()
        except BadParameter as error:
            faults.extend(error.faults)
        return None

    chosen = checked(make)
    checked(lambda: check_features(features))
    vectors = checked(lambda: VectorParameters(**vector_values)) if vector_values else None
    if chosen is None or faults:
        raise BadParameter.from_faults(faults)
    # a missing library or file is reported before data are read
    fit_forms(WordParameters(**{name: features[name] for name in WORD_FORMS if name in features}))
    return Chosen(chosen, features, vectors, next(iter(encoders), None))
