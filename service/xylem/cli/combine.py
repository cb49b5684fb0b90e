"""`xylem combine` and `xylem models vocabulary`: one version from several, and a vocabulary."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer import Option

from xylem import admin, base, workflows
from xylem.cli.aliases import store_to_publish
from xylem.cli.console import (
    complain,
    mebibytes,
    print_facts,
    print_json,
    print_result,
    print_table,
    progress,
)
from xylem.cli.labels import BY_URI, FirstName, KeyKind
from xylem.cli.options import (
    DEFAULT_STORE,
    Data,
    Json,
    Model,
    Seed,
    StoreDir,
    Table,
    grouped,
    in_panel,
    parse_reference,
)
from xylem.cli.train import NewModel

app = typer.Typer(help="Vocabularies of combined versions: a part of `xylem models`.")

_VOCABULARY = (
    "A file of concepts with their names: SKOS (.ttl, .rdf, .nt), .tsv or .csv, also as .gz."
)

Language = Annotated[
    str | None, Option("--language", metavar="LANGUAGE", help="Language of the names, such as fi.")
]


class Parts(NamedTuple):
    """The options for what is combined."""

    members: Annotated[
        list[str],
        Option("--member", metavar="NAME[@VERSION]", help="A version to combine; may repeat."),
    ]
    vocabulary: Annotated[Path | None, Option("--vocabulary", metavar="FILE", help=_VOCABULARY)] = (
        None
    )
    language: Language = None
    by: KeyKind = BY_URI
    first_name: FirstName = False


@in_panel("Ranking")
class Ranking(NamedTuple):
    """The options for how candidates are found and ranked."""

    candidates: Annotated[
        int,
        Option("--candidates", min=1, max=1000, help="Number of labels of each member to rank."),
    ] = 50
    beam_width: Annotated[
        int | None,
        Option(
            "--beam-width",
            min=1,
            max=1000,
            help="Beam width of the members' searches.  [default: the smallest that loses at most "
            "0.2 F1@5 of --data against 1000]",
        ),
    ] = None
    ranker: Annotated[
        str,
        Option(
            "--ranker", metavar="auto|boosted|linear", help="auto: boosted with 100 rows or more."
        ),
    ] = "auto"
    rerank: Annotated[
        Path | None,
        Option(
            "--rerank",
            metavar="FILE",
            help="The training rows of the first member: similar rows help to rank, if "
            "figures gain.",
        ),
    ] = None


Folds = Annotated[
    bool,
    Option(
        "--folds",
        help="Train members that were trained on --data again, by folds: for each row the ranker "
        "sees what they propose without having seen it.",
    ),
]


@grouped
def combine(
    parts: Parts,
    data: Data,
    table: Table,
    model: NewModel,
    ranking: Ranking,
    folds: Folds = False,
    seed: Seed = 0,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Combine versions, and a vocabulary, into one version that ranks the labels they propose.

    The ranker is fitted to --data: labelled rows that no member was trained on, at least 30. The
    figures are cross-validated on these rows, and shown beside those of each member alone. The
    result is published as a version like any other. Needs the extra sklearn.
    """
    from xylem.vocabulary import CombineRequest, combine_and_publish

    request = CombineRequest(
        members=[parse_reference(member) for member in parts.members],
        data=data,
        vocabulary=parts.vocabulary,
        language=parts.language,
        key_kind=parts.by,
        first_name=parts.first_name,
        columns=table.columns(data, ranking.rerank),
        seed=seed,
        trainer_of=workflows.part_trainer if folds else None,
        **ranking._asdict(),
    )
    with progress(json) as show:
        facts = combine_and_publish(store_to_publish(store, "xylem combine"), model, request, show)
    if json:
        print_json(facts)
    else:
        _print(facts, store)


def _print(facts: dict[str, Any], store: Path) -> None:
    """Print what was published, and its figures beside those of its members."""
    member_figures = facts["members"]
    combined = facts["combined"]
    summary: dict[str, Any] = {
        "members": ", ".join(member_figures),
        "labels": f"{facts['labels']:,}",
        "ranker": f"{facts['ranker']}, fitted to {facts['rows']:,} rows",
        "model": mebibytes(facts["model_bytes"]),
    }
    if beams := facts["beams"]:
        figures = (
            f"{beam['beam_width']:,}: F1@5 {beam['f1_at_5']:.1f} in {beam['us_per_row']:,.0f} us"
            for beam in beams
        )
        summary["beam width"] = f"{facts['beam_width']:,} ({'; '.join(figures)} a row)"
    if reranked := facts.get("rerank"):
        summary["near rows"] = (
            "kept: held-out rows gain" if reranked["kept"] else "left out: they gain nothing"
        )
    for i, warning in enumerate(facts["warnings"]):
        summary["warning" if i == 0 else f"warning {i + 1}"] = warning
    print_facts(f"Published {facts['model']}@{facts['version']} in {store}", summary)
    rows = [
        [name, *(f"{value:.1f}" for value in figures.values())]
        for name, figures in member_figures.items()
    ]
    rows.append(["combined", *(f"{value:.1f}" for value in combined.values())])
    print_table("By folds of the rows; percent", ["", *combined], rows)


@app.command()
def vocabulary(
    model: Model,
    file: Annotated[Path, Option("--set", metavar="FILE", help=_VOCABULARY)],
    language: Language = None,
    by: KeyKind = "",
    first_name: FirstName = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish a combined version with another vocabulary, without training.

    From then on, new concepts are found by their names. Concepts that the file does not have are
    removed. The others keep what was learnt about them; --by says what matches labels and concepts.
    """
    from xylem.vocabulary import VocabularyRequest, set_vocabulary

    name, reference = parse_reference(model)
    model_store = store_to_publish(store, "xylem models vocabulary")
    with base.opened_database(store) as database:
        added = admin.ModelLearning.of_store(
            model_store, database, base.read_settings(store=store)
        ).additions(name)["concepts"]
    report = set_vocabulary(
        model_store, name, reference, VocabularyRequest(file, language, by, first_name, added=added)
    )
    for finding in report.findings:
        complain(f"warning: {file.name}: {finding['message']} ({finding['code']})")
    print_result(
        json,
        f"{name}@{report.parent} with {file} -> {name}@{report.version}: {report.added:,} "
        f"labels added, {report.removed:,} removed",
        **report._asdict(),
    )
