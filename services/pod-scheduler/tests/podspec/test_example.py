from pathlib import Path

import msgspec
import yaml

from sunk_kube.pods import Pod
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.podspec.warnings import warnings
from sunk_pod_scheduler.testing.builders import KEY

FILE = Path(__file__).parents[4] / "docs/examples/full-node-gpu-pod.yaml"
MADE = Placeholder(script="#!/bin/bash\n", hooks_url="http://hooks", key=KEY)


def test_the_example_of_a_whole_gpu_node_is_valid_as_it_stands_and_asks_for_all_of_it() -> None:
    pod = msgspec.convert(yaml.safe_load(FILE.read_text()), Pod)
    wanted = validate(pod, Rules(gpu_types={"NVIDIA_H100": "h100"}))

    assert isinstance(wanted, ValidatedPod)
    assert warnings(pod, wanted) == ()
    job = describe(pod, wanted, NodeChoice(), 0, MADE)
    assert (job.tres_per_node, job.shared, job.cpus_per_task) == ("gres/gpu:h100:8", ("none",), 96)
