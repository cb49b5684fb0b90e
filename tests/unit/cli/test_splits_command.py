"""`xylem models canary` and `shadow`, and what they change of promote, rollback,
delete and list.
"""

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Cli

from xylem.admin.registry.remote import RemoteStore
from xylem_store.alias import PARTS, TrafficShare
from xylem_store.store import Store


def test_a_canary_comes_grows_and_is_promoted(cli: Cli, versions_of_m: Store) -> None:
    assert (
        cli.says("models", "canary", "m@2", "--weight", "10%")
        == "m: latest -> 3, canary 2 at 0.1\n"
    )
    found, canary = (
        cli.answers("models", "canary", "m@2", "--weight", "0.5"),
        {"version": 2, "weight": 0.5},
    )
    assert found == {
        "model": "m",
        "alias": "latest",
        "version": 3,
        "canary": canary,
        "shadow": None,
    }
    assert cli.says("models", "shadow", "m@1") == "m: latest -> 3, canary 2 at 0.5, shadow 1 at 1\n"
    assert "latest -> 3, canary 2 at 0.5, shadow 1 at 1" in cli.says("models", "list")
    listed = cli.answers("models", "list")["models"][0]["splits"]
    assert listed["latest"]["shadow"] == {"version": 1, "share": 1.0}
    cli.refuses("found canary of latest", "models", "delete", "m@2")
    assert cli.answers("models", "promote", "m")["version"] == 2
    assert versions_of_m.alias("m").split_versions == ()
    cli.refuses("expected", "models", "promote", "m")


def test_a_rollback_ends_a_canary(cli: Cli, versions_of_m: Store) -> None:
    cli.says("models", "canary", "m@2", "--weight", "0.01%")
    assert versions_of_m.alias("m").canary == TrafficShare(2, 1)
    assert cli.answers("models", "rollback", "m")["version"] == 3
    assert versions_of_m.alias("m").split_versions == ()
    assert cli.answers("models", "rollback", "m")["version"] == 2


def test_each_ends_alone(cli: Cli, versions_of_m: Store) -> None:
    cli.says("models", "canary", "m@2", "--weight", "10%")
    cli.says("models", "shadow", "m@1", "--share", "25%")
    assert cli.says("models", "canary", "m", "--end") == "m: latest -> 3, shadow 1 at 0.25\n"
    assert cli.says("models", "shadow", "m", "--end") == "m: latest -> 3\n"
    assert versions_of_m.alias("m").split_versions == ()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["canary", "m@2"], "expected --weight or --end, one of them"),
        (["canary", "m@2", "--weight", "5%", "--end"], "expected --weight or --end, one of them"),
        (
            ["canary", "m@2", "--weight", "much"],
            "--weight: expected a part such as 10% or 0.1, found 'much'",
        ),
        (
            ["canary", "m@2", "--weight", "100%"],
            "weight: expected a multiple of 0.0001 above 0 and below 1",
        ),
        (["canary", "m@2", "--weight", "0"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "-5%"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "nan"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "0.001%"], "weight: expected a multiple of 0.0001"),
        (
            ["canary", "m@3", "--weight", "5%"],
            "canary: expected another version than the alias names",
        ),
        (["canary", "m@9", "--weight", "5%"], "expected one of its versions, found 9"),
        (["canary", "m", "--weight", "5%"], "expected NAME@VERSION"),
        (["canary", "m@2", "--weight", "5%", "--alias", "none"], "expected an alias, found 'none'"),
        (
            ["shadow", "m@2", "--share", "101%"],
            "share: expected a multiple of 0.0001 above 0 and at most 1",
        ),
        (["shadow", "m", "--end", "--share", "5%"], "expected --share or --end, not both"),
    ],
)
def test_what_does_not_fit_is_refused(
    cli: Cli, versions_of_m: Store, arguments: list[str], fault: str
) -> None:
    cli.refuses(fault, "models", *arguments)
    assert versions_of_m.alias("m").split_versions == ()


@pytest.mark.usefixtures("versions_of_m")
def test_a_split_is_pushed(cli: Cli, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote"
    latest, canary = (url, "--alias", "latest"), ("--canary", "10%")
    cli.says("models", "push", "m@1", *latest)
    pushed = cli.says("models", "push", "m@2", *latest, *canary)
    assert pushed.splitlines()[-1] == "m: latest -> 1, canary 2 at 0.1"
    cli.says("models", "push", "m@3", *latest, "--shadow", "100%")
    there = RemoteStore(url).model("m").aliases["latest"]
    assert (there.version, there.canary, there.shadow) == (
        1,
        TrafficShare(2, 1000),
        TrafficShare(3, PARTS),
    )
    cli.refuses("--alias", "models", "push", "m@2", url, *canary)
    cli.refuses("--shadow", "models", "push", "m@2", *latest, *canary, "--shadow", "1%")
    cli.says("models", "push", "m@2", *latest)
    assert RemoteStore(url).model("m").aliases["latest"].versions == (2,)
