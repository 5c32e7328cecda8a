"""A real Prometheus that scrapes."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sunk_lab.ports import free_port
from sunk_runtime.testing import WITHIN_S

_PROMETHEUS: Final = """global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: sunk
    static_configs:
      - targets: [{targets}]
        labels:
          slurm_cluster: {cluster}
  - job_name: prometheus
    static_configs:
      - targets: [{own}]
"""


class Prometheus:
    """A real Prometheus that scrapes *targets* (``host:port``) each second, all that it has in *folder*."""

    def __init__(self, folder: Path, program: str, targets: Sequence[str], cluster: str) -> None:
        folder.mkdir(exist_ok=True)
        own = f"127.0.0.1:{free_port()}"
        self.url = f"http://{own}"
        self.log = folder / "prometheus.log"
        config = folder / "prometheus.yaml"
        config.write_text(_PROMETHEUS.format(targets=", ".join(targets), cluster=cluster, own=own))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={own}",
                ],
                stderr=log,
            )

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(WITHIN_S)
