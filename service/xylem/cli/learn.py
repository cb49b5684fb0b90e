"""`xylem learn` and `xylem models recipe`: a model that learns again from what is new."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer import Option

from xylem import admin, base, thresholds, workflows
from xylem.cli.aliases import store_to_publish
from xylem.cli.combine import Language
from xylem.cli.console import (
    mebibytes,
    print_facts,
    print_json,
    print_list,
    print_result,
    print_table,
    progress,
)
from xylem.cli.labels import BY_URI, FirstName, KeyKind
from xylem.cli.options import (
    DEFAULT_STORE,
    FORMATS,
    Json,
    ModelName,
    ParameterItems,
    StoreDir,
    Table,
    Threads,
    grouped,
)
from xylem.cli.places import Place, opened_place
from xylem.cli.schedules import local_schedules
from xylem_store import LATEST

app = typer.Typer(help="Recipes: a part of `xylem models`.")


class Sources(NamedTuple):
    """The options for what is learnt; without any the recipe of the model is repeated."""

    vocabulary: Annotated[
        Path | None, Option(metavar="FILE", help="Concepts with their names: SKOS, .tsv or .csv.")
    ] = None
    data: Annotated[
        list[Path] | None,
        Option(
            "--data",
            metavar="FILE",
            help="Documents like those that will come, with their concepts: they teach all parts, "
            f"and a tenth of them judges; may repeat. {FORMATS}.",
        ),
    ] = None
    titles: Annotated[
        list[Path] | None,
        Option(
            "--titles",
            metavar="FILE",
            help="Many weak rows, such as titles: they teach a member of their own; may repeat.",
        ),
    ] = None
    language: Language = None
    key_kind: KeyKind = BY_URI
    first_name: FirstName = False
    feedback_weight: Annotated[
        float, Option(metavar="NUMBER", help="How much a stored row of feedback counts.")
    ] = 1.0
    recipe: Annotated[
        Path | None, Option(metavar="FILE", help="A recipe as TOML, instead of these options.")
    ] = None


@grouped
def learn(
    model: ModelName,
    sources: Sources,
    table: Table,
    parameters: ParameterItems = None,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Learn from a vocabulary, documents, weak rows and corrections; publish a combined version.

    The options become the recipe of the model, which the database keeps. Without them its recipe is
    repeated, with what is new: other rows in its files, corrections, a changed vocabulary. The same
    tenth of the documents is always held out, to measure the old version and the new one. Needs the
    extra sklearn.
    """

    settings = base.read_settings(store=store)
    model_store = store_to_publish(store, "xylem learn")
    model_store.prepare()
    with base.opened_database(store, create=True) as database, progress(json) as show:
        learning = admin.ModelLearning.of_store(model_store, database, settings)
        if (new_recipe := _recipe_of(sources, table, parameters)) is not None:
            learning.schedules.set_recipe(model, new_recipe.model_dump(mode="json"))
        recipe = workflows.Recipe.from_json(learning.schedules.recipe(model)["recipe"])
        span = learning.rows.span(model, recipe.feedback_days)
        request = workflows.LearnRequest(
            recipe=recipe,
            files={name: (settings.data_dir or Path()) / name for name in recipe.files},
            feedback=list(learning.rows.lines(span)),
            until=span.until,
            threads=base.n_threads(threads),
            **learning.additions(model),
        )
        report = workflows.learn_and_publish(
            model_store, model, request, thresholds.ThresholdDatabase(database), show
        )
    if json:
        print_json(report)
    else:
        _print(report, store)


def _recipe_of(
    sources: Sources, table: Table, parameters: list[str] | None
) -> "workflows.Recipe | None":
    """Return the recipe of the options or of a file; None if there are neither."""

    if sources.recipe is not None:
        if (sources, table) != (Sources(recipe=sources.recipe), Table()) or parameters:
            raise base.BadParameter("--recipe cannot be used with options that a recipe has")
        return workflows.Recipe.read(sources.recipe)
    if sources.vocabulary is None or not sources.data:
        if (sources, table) != (Sources(), Table()) or parameters:
            raise base.BadParameter(
                "expected --vocabulary and --data, with which a new recipe begins, found other "
                "options of a recipe: xylem models recipe NAME --set FILE changes one"
            )
        return None
    return workflows.Recipe.from_json(
        {
            "vocabulary": str(sources.vocabulary.resolve()),
            "language": sources.language,
            "key_kind": sources.key_kind,
            "first_name": sources.first_name,
            "sources": [
                {"file": str(path.resolve()), "role": role}
                for role, paths in (("judge", sources.data), ("members", sources.titles or ()))
                for path in paths
            ],
            "reading": {name: value for name, value in table._asdict().items() if value},
            "parameters": {
                name: base.scalar_of(text)
                for name, text in base.split_items(parameters or ()).items()
            },
            "feedback_weight": sources.feedback_weight,
        }
    )


def _print(report: dict[str, Any], store: Path) -> None:
    """Print the report of a run: rows, figures, concepts, and whether it was promoted and why."""
    uses = ("rows", "learnt", "members", "held_out", "left_out")
    print_table(
        "Rows",
        ["", *(use.replace("_", " ") for use in uses)],
        [[source["source"], *(f"{source[use]:,}" for use in uses)] for source in report["sources"]],
    )
    for name in ("judges", "corrections"):
        part = report[name]
        table = [
            [
                figure,
                f"{change['a']:.1f}",
                f"{change['b']:.1f}",
                f"{change['low']:+.1f} to {change['high']:+.1f}",
            ]
            for figure, change in part["figures"].items()
        ]
        if table:
            print_table(
                f"{part['rows']:,} {name}, held out; percent",
                ["", "before", "now", "interval of the change"],
                table,
            )
    concepts = report["concepts"]
    promotion = report["promotion"]
    facts = {
        "concepts learnt": f"{concepts['learnt']:,}, {concepts['new']:,} for the first time",
        "concepts found by their names alone": f"{concepts['by_name']:,}",
        "labels that are never answered": f"{concepts['never']:,}",
        "latest": "moves" if promotion["promoted"] else "stays",
        "because": "; ".join(promotion["reasons"]),
        "model": mebibytes(report["model_bytes"]),
    }
    facts |= {f"warning {i + 1}": text for i, text in enumerate(report["fit"]["warnings"])}
    print_facts(f"Published {report['model']}@{report['version']} in {store}", facts)


@app.command()
@grouped
def recipe(
    context: typer.Context,
    model: ModelName,
    place: Place,
    file: Annotated[
        Path | None, Option("--set", metavar="FILE", help="Replace the recipe by one in TOML.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the recipe of a model, or replace it; the next run of xylem learn repeats it."""

    with opened_place(context, place, local_schedules, create=file is not None) as schedules:
        if file is not None:
            schedules.set_recipe(model, workflows.Recipe.read(file).model_dump(mode="json"))
        facts = schedules.recipe(model)
    print_result(json, workflows.Recipe.from_json(facts["recipe"]).as_toml.rstrip(), **facts)


@app.command()
@grouped
def concepts(
    context: typer.Context,
    model: ModelName,
    place: Place,
    key: Annotated[
        str | None, Option("--add", metavar="KEY", help="Add a concept: its label, such as a URI.")
    ] = None,
    name: Annotated[
        list[str] | None,
        Option(metavar="LANGUAGE=NAME", help="A name of it, the preferred one first; may repeat."),
    ] = None,
    broader: Annotated[
        list[str] | None, Option(metavar="KEY", help="A concept above it; may repeat.")
    ] = None,
    example: Annotated[
        list[str] | None,
        Option(metavar="TEXT", help="A text that has it, for the next run; may repeat."),
    ] = None,
    removed_key: Annotated[
        str | None, Option("--remove", metavar="KEY", help="Remove a concept that was added.")
    ] = None,
    json: Json = False,
) -> None:
    """List the concepts that were added to a model's vocabulary; add one, or remove one.

    A version that answers the concept by its names is published at once: by this command, or with
    --url by a job of the server. The next run of xylem learn learns it from its examples.
    """
    if (key is None and (name or broader or example)) or (key and removed_key):
        raise base.BadParameter(
            "expected --add with its options, or --remove, found other options together"
        )
    names: dict[str, list[str]] = {}
    for item in name or ():
        language, _, text = item.partition("=")
        names.setdefault(language, []).append(text)
    with opened_place(context, place, _local_learning) as learning:
        if key is not None:
            learning.add_concept(model, key, names, broader or (), example or ())
        if removed_key is not None:
            learning.remove_concept(model, removed_key)
        added = learning.concepts(model)
    rows = [
        [
            concept["key"],
            ", ".join(name for names in concept["names"].values() for name in names),
            ", ".join(concept["broader"]),
            len(concept["examples"]),
            concept["version"] or "",
        ]
        for concept in added
    ]
    print_list(
        json,
        {"concepts": added},
        (model, ("key", "names", "broader", "examples", "version"), rows),
        f"No concepts were added to {model}",
    )


def _local_learning(database: "base.Database", settings: "base.Settings") -> "admin.ModelLearning":
    """Return how the models of a store learn; versions with another concept are published here."""
    from xylem.vocabulary import VocabularyRequest, set_vocabulary

    store = store_to_publish(settings.store, "xylem models concepts")
    learning = admin.ModelLearning.of_store(store, database, settings)

    def publish(model: str, recipe: Mapping[str, Any]) -> None:
        set_vocabulary(
            store,
            model,
            LATEST,
            VocabularyRequest(
                (settings.data_dir or Path()) / recipe["vocabulary"],
                first_name=recipe.get("first_name", False),
                added=learning.additions(model)["concepts"],
            ),
        )

    return learning._replace(publish=publish)
