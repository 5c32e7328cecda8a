"""Each file that docs/architecture.md names on its six ways is there."""

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
