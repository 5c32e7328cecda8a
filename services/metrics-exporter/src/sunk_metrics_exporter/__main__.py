"""``python -m sunk_metrics_exporter``."""

from sunk_metrics_exporter.main import main

main()
