"""How many processors a process may use, by the files of its control groups and by a real one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from xylem.base.processors import n_processors

AFFINE = len(os.sched_getaffinity(0))
V1, V2 = "3:cpuset:/\n4:cpu,cpuacct:{}\n1:name=systemd:/x\n", "0::{}\n"


def processors_of(tmp_path: Path, groups: str, files: dict[str, str]) -> int:
    for name, content in files.items():
        file = tmp_path / "mounted" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    (tmp_path / "groups").write_text(groups)
    return n_processors(tmp_path / "groups", tmp_path / "mounted")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of 64 processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))


V2_QUOTAS = {
    "200000 100000": 2,
    "150000 100000": 2,
    "10000 100000": 1,
    "6400000 100000": 64,
    "9900000 100000": 64,
    "max 100000": 64,
    "": 64,
    "200000": 64,
    "a few": 64,
}


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("quota", V2_QUOTAS)
def test_a_quota_of_version_2(tmp_path: Path, quota: str) -> None:
    assert processors_of(tmp_path, V2.format("/"), {"cpu.max": quota}) == V2_QUOTAS[quota]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("quota", "period", "n"), [(200000, 100000, 2), (-1, 100000, 64), (25000, 10000, 3)]
)
def test_a_quota_of_version_1(tmp_path: Path, quota: int, period: int, n: int) -> None:
    files = {"cpu/pod/cpu.cfs_quota_us": f"{quota}", "cpu/pod/cpu.cfs_period_us": f"{period}"}
    assert processors_of(tmp_path, V1.format("/pod"), files) == n


@pytest.mark.usefixtures("many")
def test_the_least_quota_of_the_groups_around_holds(tmp_path: Path) -> None:
    files = {
        "a/b/c/cpu.max": "max 100000",
        "a/b/cpu.max": "300000 100000",
        "a/cpu.max": "800000 100000",
    }
    assert processors_of(tmp_path, V2.format("/a/b/c"), files) == 3


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("name", ["/kubepods/pod1/of-the-host", "/../../of-the-host"])
def test_a_container_may_see_its_group_as_the_root(tmp_path: Path, name: str) -> None:
    assert processors_of(tmp_path, V2.format(name), {"cpu.max": "200000 100000"}) == 2


@pytest.mark.usefixtures("many")
def test_without_control_groups_it_is_the_affinity(tmp_path: Path) -> None:
    assert n_processors(tmp_path / "none", tmp_path) == 64
    assert processors_of(tmp_path, "2:cpuset:/\n7:memory:/x\n", {"cpu.max": "100000 100000"}) == 64


REPORT = """
import os
from xylem.base.processors import n_processors, n_threads
from xylem.base.settings import Limits
from xylem.base.start import prepare
prepare()
limits = Limits()
print(n_processors(), limits.threads_max, limits.job_threads_max, n_threads(None),
      n_threads(None, 1000),
      os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"])
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of half a processor."""
    quotas = {"cpu.max": "50000 100000", "cpu.cfs_quota_us": "50000"}
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")):
        folder = root / f"xylem-test-{os.getpid()}"
        with suppress(OSError):
            folder.mkdir()
            try:
                for name in filter(lambda name: (folder / name).exists(), quotas):
                    (folder / name).write_text(quotas[name])
                    yield folder
                    return
            finally:
                folder.rmdir()
    pytest.skip("no control group can be made here")


@pytest.mark.skipif(AFFINE < 2, reason="needs two processors")
def test_all_numbers_of_threads_are_those_of_a_real_group(group: Path) -> None:
    environment = {name: v for name, v in os.environ.items() if not name.endswith("NUM_THREADS")}
    join = f"import os; open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
    done = subprocess.run(
        [sys.executable, "-c", join + REPORT],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.stdout.split(), done.stderr) == (["1"] * 7, "")
