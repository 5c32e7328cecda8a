"""Writes the custom resource definitions of the charts from the structs that our code reads them with.

``--check`` writes nothing and fails if a file is not what the code says.
"""

import sys
from pathlib import Path
from typing import Final

import yaml
from generated import settle

from sunk_kube.crds import crds
from sunk_kube.templates import Schema

CRDS: Final = Path("helm/sunk/files/crds")
HEAD: Final = "# Generated from the structs of sunk_kube by ./task gen; not edited by hand.\n"


class _Dumper(yaml.SafeDumper):
    """Writes what stands in two places twice: no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    @classmethod
    def text(cls, crd: Schema) -> str:
        return yaml.dump(crd, Dumper=cls, sort_keys=False, width=110)


def files() -> dict[Path, str]:
    """Return what each file must hold."""
    return {CRDS / f"{crd['spec']['names']['singular']}.yaml": HEAD + _Dumper.text(crd) for crd in crds()}


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(files(), arguments, CRDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
