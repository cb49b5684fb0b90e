"""How models learn by their recipes: what waits for the next run, and what runs have reported."""

import contextlib
import datetime
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import delete, insert, select

from xylem.admin.jobs.jobs import LEARN, REQUEST_BYTES_MAX
from xylem.admin.jobs.schedules import Schedules
from xylem.base import (
    CONCEPTS,
    BadRequest,
    Database,
    LimitExceeded,
    Settings,
    XylemError,
    now,
)
from xylem.thresholds import FeedbackRows
from xylem_store import (
    NAME,
    NOTATION,
    URI,
    LabelInfo,
    Store,
    StoreError,
    Subject,
    all_names,
    build_label_info,
    find_all,
    is_language,
    learnt_feedback,
    read_origin,
    read_report,
)

# Runs of a recipe, and concepts of a kind of changes, in an answer; and versions that are searched
# for concepts.
LISTED_MAX = 50

CONCEPTS_MAX = 1000  # concepts that may be added to a model


class ModelLearning(NamedTuple):
    """How the models of a store learn, as `xylem.Client` shows it. Calls block.

    All methods raise DatabaseUnavailable, and ModelNotFound for a model that does not exist and has
    no recipe.

    publish  publishes a version with the vocabulary of a recipe, after a concept has changed; None:
             a job does
    """

    store: Store
    database: Database
    schedules: Schedules
    rows: FeedbackRows
    publish: Callable[[str, Mapping[str, Any]], Any] | None = None

    @classmethod
    def of_store(cls, store: Store, database: Database, settings: Settings) -> "ModelLearning":
        """Return how the models of a store learn whose database is open."""
        return cls(store, database, Schedules(database, settings), FeedbackRows(database, settings))

    def learning(self, model: str) -> dict[str, Any]:
        """Return the recipe of a model, its schedule, its next run, and the runs so far."""
        recipe = None
        with contextlib.suppress(BadRequest):
            recipe = self.schedules.recipe(model)["recipe"]
        if recipe is None:
            self.store.resolve(model)  # raises ModelNotFound if there is no such model
        runs = list(itertools.islice(self._runs(model), LISTED_MAX))
        span = self.rows.span(model, recipe and recipe["feedback_days"])
        if runs:
            span = span._replace(since=max(span.since, runs[0]["until"]))
        schedules = (
            {
                **{name: schedule[name] for name in ("id", "cron", "rows")},
                "next_at": schedule["next"] and _seconds(schedule["next"]),
            }
            for schedule in self.schedules.schedules()
            if (schedule["kind"], schedule["model"]) == (LEARN, model)
        )
        return {
            "recipe": recipe,
            "schedule": next(schedules, None),
            "n_waiting": self.rows.count(span),
            "job": next(
                (
                    {"id": job.id, "state": job.state}
                    for job in self.schedules.jobs.list(model=model, kind=LEARN, limit=1)
                    if not job.has_ended
                ),
                None,
            ),
            "runs": runs,
        }

    def _runs(self, model: str) -> Iterator[dict[str, Any]]:
        """Yield the reports of the versions that runs have published, the newest first."""
        for version in reversed(self.store.versions(model)):
            with contextlib.suppress(StoreError):  # deleted meanwhile, or damaged
                opened = self.store.open(model, version, verify=False)
                # a version with another vocabulary has the report of its parent, and no recipe
                if "recipe" in read_origin(opened.arrays):
                    report = read_report(opened.arrays)["learning"]
                    yield {
                        "version": version,
                        "at": _seconds(opened.manifest.created_at),
                        "until": learnt_feedback(opened.arrays).get(model, 0.0),
                        **report["promotion"],
                        "judges": report["judges"]["rows"],
                        "figures": report["judges"]["figures"],
                        **{name: report[name] for name in ("corrections", "concepts", "sources")},
                    }

    def concepts(self, model: str) -> list[dict[str, Any]]:
        """Return the concepts that were added to a model's vocabulary, the oldest first.

        `version` is the first of its newest LISTED_MAX versions that answers the concept; None: no
        version does yet.
        """
        concepts = self._added(model)
        if not concepts:
            self.store.resolve(model)  # raises ModelNotFound if there is no such model
        keys = [concept["key"] for concept in concepts]
        for version in reversed(self.store.versions(model)[-LISTED_MAX:] if concepts else ()):
            with contextlib.suppress(StoreError):
                ids = find_all(self.store.open(model, version, verify=False).labels, keys)
                for concept in itertools.compress(concepts, ids >= 0):
                    concept["version"] = version
        return concepts

    def _added(self, model: str) -> list[dict[str, Any]]:
        query = select(CONCEPTS).where(CONCEPTS.c.model == model).order_by(CONCEPTS.c.at)
        with self.database.read() as connection:
            return [
                {**json.loads(row.concept), "key": row.key, "at": row.at, "version": None}
                for row in connection.execute(query)
            ]

    def additions(self, model: str) -> dict[str, Any]:
        """Return the added concepts as `LearnRequest` takes them: `concepts`, and `examples`."""
        concepts = self._added(model)
        key_kind = self.schedules.recipe(model)["recipe"]["key_kind"] if concepts else URI
        return {
            "concepts": [_subject_of(concept, key_kind) for concept in concepts],
            "examples": [
                (text, concept["key"]) for concept in concepts for text in concept["examples"]
            ],
        }

    def add_concept(
        self,
        model: str,
        key: str,
        names: Mapping[str, Sequence[str]],
        broader: Sequence[str] = (),
        examples: Sequence[str] = (),
    ) -> Any:
        """Add a concept to a model's vocabulary, and publish a version that finds it by its names.

        key       the label
        names     by language; the first one of a language is the name, the others are other names
        broader   the keys of the concepts above it
        examples  texts that have it, which the next run learns from

        Raises BadRequest for a model without a recipe or a vocabulary, and for a concept that is
        not valid or is there already; LimitExceeded; and what a vocabulary job raises. Then nothing
        has changed.
        """
        recipe = self.schedules.recipe(model)["recipe"]
        info = self.store.label_info(model)
        if info is None:
            raise BadRequest(
                f"{model}: expected a version with a vocabulary, found none: a learn job makes one"
            ).with_path("model")
        concept = {"key": key, "names": names, "broader": broader, "examples": examples}
        _check_concept(concept, recipe)
        added = self._added(model)
        if len(added) >= CONCEPTS_MAX or len(json.dumps(concept)) > REQUEST_BYTES_MAX:
            raise LimitExceeded(
                f"expected at most {CONCEPTS_MAX} concepts of at most {REQUEST_BYTES_MAX} bytes "
                "beside a vocabulary, found more"
            )
        added_keys = {other["key"] for other in added}
        is_there = find_all(info.keys, (key, *broader)) >= 0
        if is_there[0] or key in added_keys:
            raise BadRequest(
                f"expected a key that the vocabulary does not have, found {key[:80]!r}"
            ).with_path("key")
        for i, parent in enumerate(broader):
            if not is_there[i + 1] and parent not in added_keys:
                raise BadRequest(
                    f"expected a concept of the vocabulary, found {parent[:80]!r}"
                ).with_path(f"broader[{i}]")
        return self._change(model, key, None, concept)

    def remove_concept(self, model: str, key: str) -> Any:
        """Remove a concept that was added, and publish a version without it.

        Raises BadRequest if no such concept was added, and what a vocabulary job raises. Then
        nothing has changed.
        """
        concept = next((other for other in self._added(model) if other["key"] == key), None)
        if concept is None:
            raise BadRequest(
                f"expected the key of a concept that was added to {model}, found {key[:80]!r}"
            ).with_path("key")
        return self._change(model, key, concept, None)

    def _change(
        self, model: str, key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> Any:
        """Store a concept or, if it is None, none; publish a version, or submit a job that does."""
        recipe = self.schedules.recipe(model)["recipe"]
        self._store_concept(model, key, new)
        try:
            if self.publish is not None:
                return self.publish(model, recipe)
            fields = {name: recipe[name] for name in ("vocabulary", "first_name") if name in recipe}
            return self.schedules.jobs.submit("vocabulary", {"model": model, **fields})
        except (XylemError, StoreError):
            self._store_concept(model, key, old)
            raise

    def _store_concept(self, model: str, key: str, concept: Mapping[str, Any] | None) -> None:
        with self.database.write() as connection:
            connection.execute(
                delete(CONCEPTS).where((CONCEPTS.c.model == model) & (CONCEPTS.c.key == key))
            )
            if concept is not None:
                connection.execute(
                    insert(CONCEPTS).values(
                        model=model,
                        key=key,
                        concept=json.dumps(concept),
                        at=concept.get("at") or now(connection),
                    )
                )

    def vocabulary_changes(self, model: str, vocabulary: Path) -> dict[str, Any]:
        """Return what a file of concepts would change in a model's vocabulary.

        "added", "changed" and "removed" have concepts, at most LISTED_MAX each, with "key", "name"
        and, if it changed, "old_name"; "n_added" and so on are their numbers. Concepts that were
        added to the vocabulary stay. A job calls it, because a large file of RDF takes a minute of
        an interpreter. Raises BadRequest, and BadData for a file that cannot be read.
        """
        info = self.store.label_info(model)
        if info is None:
            self.store.resolve(model)  # raises ModelNotFound if there is no such model
            raise BadRequest(f"{model}: expected a model with a vocabulary, found one without")
        from xylem.vocabulary import read_label_info  # imported only now: readers come with it

        old_names = _names_of(info, info.head.language)
        new_names = _names_of(
            read_label_info(
                vocabulary,
                info.head.columns[0].removeprefix(NAME),
                info.head.language or None,
                first_name=True,
                added=self.additions(model)["concepts"],
            ),
            info.head.language,
        )
        changes = {
            "added": [
                {"key": key, "name": name}
                for key, name in new_names.items()
                if key not in old_names
            ],
            "changed": [
                {"key": key, "name": name, "old_name": old_names[key]}
                for key, name in new_names.items()
                if old_names.get(key, name) != name
            ],
            "removed": [
                {"key": key, "name": name}
                for key, name in old_names.items()
                if key not in new_names
            ],
        }
        counts = {f"n_{kind}": len(concepts) for kind, concepts in changes.items()}
        return counts | {kind: concepts[:LISTED_MAX] for kind, concepts in changes.items()}


def _check_concept(concept: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    """Raise BadRequest, at its field, for the first fault of a concept."""
    names = concept["names"]
    language = recipe["language"]
    key_kind = recipe["key_kind"]
    for tag in names:
        if not is_language(tag):
            raise BadRequest(f"expected a language, as en or pt-br, found {tag[:40]!r}").with_path(
                "names"
            )
    if not names or (language is not None and language not in names):
        raise BadRequest(
            f"expected a name in {language or 'a language'}, found {', '.join(names) or 'none'}"
        ).with_path("names")
    texts = {f"names.{tag}": [*of_tag] or [""] for tag, of_tag in names.items()}
    for path, of_path in {
        "key": [concept["key"]],
        "examples": concept["examples"],
        **texts,
    }.items():
        if not all(map(str.strip, of_path)):
            raise BadRequest("expected a text, found an empty one").with_path(path)
    first_name = names.get(key_kind, [concept["key"]])[0]
    if key_kind not in (URI, NOTATION) and (key_kind not in names or first_name != concept["key"]):
        raise BadRequest(
            f"expected the first name in {key_kind}, because labels are these names, found another"
        ).with_path("key")
    try:
        build_label_info([_subject_of(concept, key_kind)])
    except ValueError as error:
        raise BadRequest(str(error)).with_path("names") from None


def _subject_of(concept: Mapping[str, Any], key_kind: str) -> Subject:
    return Subject(
        uri=concept["key"],
        notation=concept["key"] if key_kind == NOTATION else None,
        names={tag: of_tag[0] for tag, of_tag in concept["names"].items()},
        broader=concept["broader"],
        other_names=[
            (tag, False, name) for tag, of_tag in concept["names"].items() for name in of_tag[1:]
        ],
    )


def _names_of(info: LabelInfo, language: str) -> dict[str, str]:
    """Return the name of each concept that is not deprecated, by its key."""
    deprecated = info.deprecated()
    return {
        key: info.text(f"{NAME}{language}", i) or key
        for i, key in enumerate(all_names(info.keys))
        if deprecated is None or not deprecated[i]
    }


def _seconds(time: str) -> float:
    return datetime.datetime.fromisoformat(time).timestamp()
