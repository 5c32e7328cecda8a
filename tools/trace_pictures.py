"""Draws the traces of the story: the spans that the services of a real run of the lab send by OTLP."""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

from sunk_lab.collector import Collector
from sunk_lab.config import from_environment
from sunk_lab.processes import wait_for
from sunk_lab.stack.stack import Stack
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS
from sunk_lab.story.traces import WAYS, find, picture


class Options(argparse.Namespace):
    """What is wanted."""

    folder: Path


def main() -> None:
    """Bring up the lab, draw one trace of each way, take the lab down."""
    parser = argparse.ArgumentParser(prog="trace_pictures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/traces"))
    options = parser.parse_args(namespace=Options())
    with Collector() as collector:
        more = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_SAMPLER_ARG": "1"}
        os.environ.update(more)  # noqa: TID251 - the services inherit it; no setting is read here.
        stack = Stack(from_environment(), report=partial(print, file=sys.stderr, flush=True))
        try:
            stack.up()
            STEPS["cordon"](Stage(stack))  # The first look of each service is slower than all others.
            for way in WAYS:
                began = time.time_ns()
                STEPS[way](Stage(stack))
                spans = wait_for(f"the trace of {way}", partial(find, collector, way, began))
                file = options.folder / f"{way}.svg"
                file.write_text(picture(spans, way))
                print(file)
        finally:
            stack.down()


if __name__ == "__main__":
    main()
