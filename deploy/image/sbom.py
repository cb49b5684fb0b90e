"""Write what this interpreter's installation is made of, as CycloneDX
1.6 in JSON: `python sbom.py FILE`.

The distributions of Python, with versions, licences and what each needs. What is below, such as the
packages of Debian in an image's base, is not in it. Equal installations give equal bytes: no date,
no number drawn.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = "xylem-serve"


def normalised(name: str) -> str:
    """Return the name of a distribution as package URLs have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def purl_of(package: Distribution) -> str:
    """Return the package URL of a distribution, by which others refer to it."""
    return f"pkg:pypi/{normalised(package.metadata['Name'])}@{package.version}"


def licence_of(package: Distribution) -> list[dict[str, Any]]:
    """Return the licence: an SPDX expression where it has one, else the
    name that it states, else nothing.
    """
    expression = package.metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    named = (package.metadata.get("License") or "").strip()
    classified = [
        each.rpartition(" :: ")[2]
        for each in package.metadata.get_all("Classifier") or ()
        if each.startswith("License :: ")
    ]
    name = named if named and "\n" not in named else " AND ".join(classified)
    return [{"license": {"name": name}}] if name else []


def component(package: Distribution, kind: str = "library") -> dict[str, Any]:
    """Return a distribution as a component."""
    purl = purl_of(package)
    found: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl,
        "name": package.metadata["Name"],
        "version": package.version,
        "purl": purl,
    }
    licences = licence_of(package)
    return {**found, "licenses": licences} if licences else found


def bill(packages: list[Distribution]) -> dict[str, Any]:
    """Return the document for all distributions, of which ROOT is what the others are there for."""
    named = {normalised(package.metadata["Name"]): package for package in packages}
    others = [package for name, package in sorted(named.items()) if name != ROOT]
    needs = []
    for _, package in sorted(named.items()):
        found = {
            normalised(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in package.requires or ()
        }
        depends_on = sorted(purl_of(named[name]) for name in found & named.keys())
        needs.append({"ref": purl_of(package), "dependsOn": depends_on})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(named[ROOT], "application")},
        "components": [component(package) for package in others],
        "dependencies": needs,
    }


def main() -> None:
    """Write the document of this interpreter's installation."""
    document = bill(list(distributions()))
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{len(document['components'])} components in {sys.argv[1]}\n")


if __name__ == "__main__":
    main()
