"""python -m sunk_pod_scheduler."""

from sunk_pod_scheduler.main import main

main()
