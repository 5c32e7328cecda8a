"""Alert rules ask for metrics that exist, and each has a page that says what to do."""

import re
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "sunk" / "files" / "alerts.yaml"
UNIT_TESTS = Path(__file__).with_name("alerts_test.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"
SUFFIXES = ("_bucket", "_count", "_sum")
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]


def documented() -> dict[str, str]:
    """Return the type of each metric by its name, from the generated page."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    return dict(cast("list[tuple[str, str]]", rows))


METRICS = documented()
BY_NAME = pytest.mark.parametrize("alert", ALERTS, ids=[str(alert["alert"]) for alert in ALERTS])


def is_there(name: str) -> bool:
    """Whether *name* is a metric, or one of the parts of a histogram."""
    parts = [name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)]
    return name in METRICS or any(METRICS.get(part) == "histogram" for part in parts)


@BY_NAME
def test_an_alert_asks_for_metrics_that_exist(alert: dict[str, Any]) -> None:
    names = re.findall(r"\b(?:sunk|slurm)_(?!cluster\b)\w+", alert["expr"])

    assert names
    assert [name for name in names if not is_there(name)] == []


@BY_NAME
def test_an_alert_has_a_page_that_shows_its_rule_and_says_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    assert alert["annotations"]["description"]
    page = (ROOT / alert["annotations"]["runbook_url"]).read_text()

    assert page.startswith(f"# {alert['alert']}\n")
    assert f"    {alert['expr']}\n" in page
    assert f"Severity {alert['labels']['severity']}." in page
    for heading in ("What it means", "Where to look", "What to do"):
        assert f"\n## {heading}\n" in page


def test_no_page_is_left_of_an_alert_that_is_gone() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}

    assert pages == {alert["alert"] for alert in ALERTS}


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    cases = [
        (case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]
    ]

    assert set(cases) == {(alert["alert"], fires) for alert in ALERTS for fires in (False, True)}


@pytest.mark.timeout(1800)  # 20 to 40 s of a processor.
def test_the_alerts_fire_when_they_should_and_only_then(promtool: Path) -> None:
    done = subprocess.run(
        [str(promtool), "test", "rules", str(UNIT_TESTS)],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
