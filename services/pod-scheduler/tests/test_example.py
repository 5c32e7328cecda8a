from pathlib import Path

import msgspec
import yaml

from sunk_kube.objects import Pod
from sunk_pod_scheduler.nodes import Choice
from sunk_pod_scheduler.request import Placeholder, describe
from sunk_pod_scheduler.testing import KEY
from sunk_pod_scheduler.validate import Rules, Wanted, validate
from sunk_pod_scheduler.warnings import warnings

FILE = Path(__file__).parents[3] / "docs/examples/full-node-gpu-pod.yaml"
MADE = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)


def test_the_example_of_a_whole_gpu_node_is_valid_as_it_stands_and_asks_for_all_of_it() -> None:
    pod = msgspec.convert(yaml.safe_load(FILE.read_text()), Pod)
    wanted = validate(pod, Rules(gpu_types={"NVIDIA_H100": "h100"}))

    assert isinstance(wanted, Wanted)
    assert warnings(pod, wanted) == ()
    job = describe(pod, wanted, Choice(), 0, MADE)
    assert (job.tres_per_node, job.shared, job.cpus_per_task) == ("gres/gpu:h100:8", ("none",), 96)
