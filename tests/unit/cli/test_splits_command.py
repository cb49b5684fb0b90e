"""`xylem models canary` and `shadow`, and what they change of promote, rollback, delete and list."""

from pathlib import Path

import pytest

from model_store.alias import PARTS, Beside
from model_store.documents import render_sealed
from model_store.store import Store
from service.registry.remote import RemoteStore
from tests.conftest import Command, answer

pytestmark = pytest.mark.usefixtures("versions_of_m")


def test_a_canary_comes_grows_and_is_promoted(command: Command, versions_of_m: Store) -> None:
    assert command("models", "canary", "m@2", "--weight", "10%")[1] == "m: latest -> 3, canary 2 at 0.1\n"
    assert answer(command("models", "canary", "m@2", "--weight", "0.5", "--json")) == {
        "model": "m",
        "alias": "latest",
        "version": 3,
        "canary": {"version": 2, "weight": 0.5},
        "shadow": None,
    }
    assert command("models", "shadow", "m@1")[1] == "m: latest -> 3, canary 2 at 0.5, shadow 1 at 1\n"
    assert "latest -> 3, canary 2 at 0.5, shadow 1 at 1" in command("models", "list")[1]
    listed = answer(command("models", "list", "--json"))["models"][0]["splits"]
    assert listed["latest"]["shadow"] == {"version": 1, "share": 1.0}
    status, _, err = command("models", "delete", "m@2")
    assert (status, "found canary of latest" in err) == (2, True)
    assert answer(command("models", "promote", "m", "--json"))["version"] == 2
    assert versions_of_m.alias("m").others == ()
    assert command("models", "promote", "m")[0] == 2


def test_a_rollback_ends_a_canary(command: Command, versions_of_m: Store) -> None:
    assert command("models", "canary", "m@2", "--weight", "0.01%")[0] == 0
    assert versions_of_m.alias("m").canary == Beside(2, 1)
    assert answer(command("models", "rollback", "m", "--json"))["version"] == 3
    assert versions_of_m.alias("m").others == ()
    assert answer(command("models", "rollback", "m", "--json"))["version"] == 2


def test_each_ends_alone(command: Command, versions_of_m: Store) -> None:
    command("models", "canary", "m@2", "--weight", "10%")
    command("models", "shadow", "m@1", "--share", "25%")
    assert command("models", "canary", "m", "--end")[1] == "m: latest -> 3, shadow 1 at 0.25\n"
    assert command("models", "shadow", "m", "--end")[1] == "m: latest -> 3\n"
    assert versions_of_m.alias("m").others == ()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["canary", "m@2"], "expected --weight or --end, one of them"),
        (["canary", "m@2", "--weight", "5%", "--end"], "expected --weight or --end, one of them"),
        (["canary", "m@2", "--weight", "much"], "--weight: expected a part as 10% or 0.1, found 'much'"),
        (["canary", "m@2", "--weight", "100%"], "weight: expected a multiple of 0.0001 above 0 and below 1"),
        (["canary", "m@2", "--weight", "0"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "-5%"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "nan"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@2", "--weight", "0.001%"], "weight: expected a multiple of 0.0001"),
        (["canary", "m@3", "--weight", "5%"], "canary: expected another version than the alias names"),
        (["canary", "m@9", "--weight", "5%"], "expected one of its versions, found 9"),
        (["canary", "m", "--weight", "5%"], "expected NAME@VERSION"),
        (["canary", "m@2", "--weight", "5%", "--alias", "none"], "expected an alias, found 'none'"),
        (["shadow", "m@2", "--share", "101%"], "share: expected a multiple of 0.0001 above 0 and at most 1"),
        (["shadow", "m", "--end", "--share", "5%"], "expected --share or --end, not both"),
    ],
)
def test_what_does_not_fit_is_refused(
    command: Command, versions_of_m: Store, arguments: list[str], fault: str
) -> None:
    status, out, err = command("models", *arguments)
    assert (status, out) == (2, "")
    assert fault in err
    assert versions_of_m.alias("m").others == ()


def test_a_split_is_pushed(command: Command, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/remote"
    assert command("models", "push", "m@1", url, "--alias", "latest")[0] == 0
    status, out, _ = command("models", "push", "m@2", url, "--alias", "latest", "--canary", "10%")
    assert (status, out.splitlines()[-1]) == (0, "m: latest -> 1, canary 2 at 0.1")
    assert command("models", "push", "m@3", url, "--alias", "latest", "--shadow", "100%")[0] == 0
    there = RemoteStore(url).model("m").aliases["latest"]
    assert (there.version, there.canary, there.shadow) == (1, Beside(2, 1000), Beside(3, PARTS))
    assert command("models", "push", "m@2", url, "--canary", "10%")[0] == 2
    assert (
        command("models", "push", "m@2", url, "--alias", "latest", "--canary", "10%", "--shadow", "1%")[0]
        == 2
    )
    assert command("models", "push", "m@2", url, "--alias", "latest")[0] == 0
    assert RemoteStore(url).model("m").aliases["latest"].versions == (2,)


def test_a_store_of_before_is_migrated_by_a_command(command: Command, versions_of_m: Store) -> None:
    aliases = versions_of_m.root / "models" / "m" / "aliases"
    (aliases / "latest.json").unlink()
    (aliases / "latest").write_bytes(render_sealed({"version": 2, "history": [1]}))
    status, _, err = command("models", "list")
    assert (status, "which xylem models migrate makes of those of an earlier release" in err) == (1, True)
    assert answer(command("models", "migrate", "--json")) == {"models": ["m"]}
    assert versions_of_m.alias("m").versions == (2,)
    assert command("models", "migrate")[1] == "aliases of 0 models migrated\n"
