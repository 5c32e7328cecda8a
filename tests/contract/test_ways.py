"""Each file that docs/architecture.md and CONTRIBUTING name as the place of something is there."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = {
    "ps": "services/pod-scheduler/src/sunk_pod_scheduler",
    "sy": "services/syncer/src/sunk_syncer",
    "nc": "services/nodeset-controller/src/sunk_nodeset_controller",
    "hg": "services/hook-gateway/src/sunk_hook_gateway",
    "me": "services/metrics-exporter/src/sunk_metrics_exporter",
    "kube": "libs/sunk_kube/src/sunk_kube",
    "slurm": "libs/sunk_slurm/src/sunk_slurm",
    "runtime": "libs/sunk_runtime/src/sunk_runtime",
}


def test_every_file_on_the_six_ways_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("## Six ways")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)/([\w/]+\.py)`", text)
    folders = re.findall(r"`(\w\w)` is `([\w/-]+)`", text)

    assert all(FOLDERS[short] == folder for short, folder in folders)
    assert len(named) > 50
    assert [path for short, path in named if not (ROOT / FOLDERS[short] / path).is_file()] == []


def test_every_file_that_answers_a_question_of_contributing_is_there() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where is it?")[2].partition("\n## ")[0]
    answers = re.findall(r"^\| [^|]+\? \| ([\w-]+): ([^|]+) \|$", rows, re.MULTILINE)
    named = [(service, path) for service, cell in answers for path in re.findall(r"`([\w/]+\.py)`", cell)]

    assert len(answers) == 10
    missing = [
        (service, path)
        for service, path in named
        if not (ROOT / f"services/{service}/src/sunk_{service.replace('-', '_')}" / path).is_file()
    ]
    assert missing == []
