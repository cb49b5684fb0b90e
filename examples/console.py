"""What `make console` runs: the demo's model, trained once, served with the console
until Ctrl+C.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "debtags"
HOME = ROOT / "build" / "console"
XYLEM = Path(sys.executable).with_name("xylem")
MODEL = "debtags"


def prepare() -> None:
    """Put the data files in their place, and train and tune the model, unless that
    was done before.
    """
    store, data = HOME / "store", HOME / "data"
    os.environ |= {"XYLEM_STORE": str(store), "XYLEM_DATA_DIR": str(data)}
    data.mkdir(parents=True, exist_ok=True)
    for file in EXAMPLES.iterdir():
        if not (data / file.name).exists():
            shutil.copy(file, data)
    if not (store / "models" / MODEL).exists():
        files = ("--data", str(data / "train.jsonl.gz"), "--valid", str(data / "test.jsonl.gz"))
        subprocess.run([XYLEM, "train", "label-tree", *files, "--model", MODEL], check=True)
        tuned = ("--data", str(data / "test.jsonl.gz"))
        subprocess.run([XYLEM, "thresholds", MODEL, *tuned], check=True)


def main() -> None:
    prepare()
    key = os.environ.setdefault("XYLEM_ADMIN_KEY", secrets.token_urlsafe(18))
    port = os.environ.setdefault("XYLEM_PORT", "8080")
    print(f"The page:      http://127.0.0.1:{port}/")
    print(
        f"The admin key: {key}  (for the pages Train, Versions and Keys; another at each start)",
        flush=True,
    )
    os.environ.setdefault("XYLEM_ACCESS_LOG", "false")
    os.execv(XYLEM, [str(XYLEM), "serve"])


if __name__ == "__main__":
    main()
