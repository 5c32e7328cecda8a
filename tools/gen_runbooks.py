"""Writes `docs/runbooks/README.md`: each alert, what it says, its page. ``--check`` as in `gen_crds.py`."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import yaml
from generated import ROOT, settle

PAGE: Final = Path("docs/runbooks/README.md")
ALERTS: Final = Path("helm/sunk/files/alerts.yaml")
HEAD: Final = """# Runbooks

`./task gen` writes this list from [alerts.yaml](../../helm/sunk/files/alerts.yaml); do not edit it by hand.
Each alert has a page: what it means, where to look, what to do. Many pages use the command `sunk-bus`.
[bus.md](../bus.md) says how to run it against an installed cluster.
[`sunkctl doctor`](../sunkctl.md#what-is-wrong) finds the causes of alerts without Prometheus.

| alert | severity | what it says |
| --- | --- | --- |
"""
_LABEL: Final = re.compile(r"\{\{\s*\$labels\.(\w+)\s*\}\}")
_CONTROL: Final = re.compile(r"\{\{-?\s*(?:if|else|end|with|range)\b[^}]*\}\}")
_OTHER: Final = re.compile(r"\{\{[^}]*\}\}")


def page() -> str:
    """Return the page."""
    rows = (
        f"| [{rule['alert']}]({rule['alert']}.md) | {rule['labels']['severity']} | {_said(rule)} |\n"
        for rule in _alerts(yaml.safe_load((ROOT / ALERTS).read_text()))
    )
    return HEAD + "".join(dict.fromkeys(rows))


def _alerts(found: object) -> Iterator[dict[str, Any]]:
    """Yield each rule that is an alert; Prometheus' own schema is its type."""
    for group in cast("dict[str, Any]", found)["groups"]:
        yield from (rule for rule in group["rules"] if "alert" in rule)


def _said(rule: dict[str, Any]) -> str:
    text = str(rule["annotations"]["summary"])
    return _OTHER.sub("*N*", _LABEL.sub(r"*\1*", _CONTROL.sub("", text))).replace("|", "/")


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle({PAGE: page()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
