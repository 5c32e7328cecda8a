"""Writes the custom resource definitions of the charts from the structs that our code reads them with.

``--check`` writes nothing and fails if a file is not what the code says.
"""

import sys
from pathlib import Path
from typing import Final

import yaml

from sunk_kube.crds import crds
from sunk_kube.templates import Schema

CRDS: Final = Path(__file__).resolve().parent.parent / "helm" / "sunk" / "crds"
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


def main() -> int:
    """Write or check; return the exit status."""
    wanted = files()
    if "--check" not in sys.argv[1:]:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(CRDS.parents[2])} is stale: run ./task gen", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
