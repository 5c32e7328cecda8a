"""What a view costs in memory for each object, as its decoder and `slim` make it; sizes are CPython's own."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sunk_kube.objects import KubeObject, Node, ObjectMeta
from sunk_kube.pods import Pod, PodSpec, Toleration
from sunk_kube.reflector import LONGEST, TOLERATIONS_MAX, slim
from sunk_kube.wellknown import ANNOTATION_DRAIN

MANY = 200
MOMENT = "2026-01-01T00:00:00Z"
TYPES = ("Ready", "Initialized", "PodScheduled", "SlurmDrain", "SlurmRunning", "SlurmNotResponding")
Made = dict[str, Any]


def meta(number: int, labels: int, noise: int) -> Made:
    fields: Made = {f"f:{at}": {} for at in range(40)}
    return {
        "name": f"gpu-000-{number:04}",
        "namespace": "slurm",
        "uid": f"0f8b0d5c-0000-4000-8000-{number:012}",
        "resourceVersion": str(10**6 + number),
        "creationTimestamp": MOMENT,
        "labels": {f"example.com/label-{at}": f"value-{at}-{number}" for at in range(labels)},
        "annotations": {f"example.com/note-{at}": "x" * 40 for at in range(8)}
        | {"example.com/big": "x" * noise},
        "managedFields": [{"manager": f"m{at}", "fieldsV1": fields} for at in range(noise // 5000)],
    }


def a_pod(number: int, noise: int) -> Made:
    environment = [{"name": f"E{at}", "value": "x" * 30} for at in range(20 + noise // 1000)]
    spec = {
        "nodeName": f"node{number}",
        "containers": [{"name": "slurmd", "image": "slurmd:1", "env": environment}],
        "tolerations": [{"key": f"t{at}", "operator": "Exists", "effect": "NoExecute"} for at in range(8)],
    }
    conditions = [{"type": one, "status": "True", "lastTransitionTime": MOMENT} for one in TYPES]
    return {"metadata": meta(number, 10, noise), "spec": spec, "status": {"conditions": conditions}}


def a_node(number: int, noise: int) -> Made:
    conditions = [
        {
            "type": f"C{at}",
            "status": "False",
            "message": f"all is well with {at}",
            "lastTransitionTime": MOMENT,
        }
        for at in range(16)
    ]
    images = [{"names": [f"registry.example/{at}"], "sizeBytes": 1} for at in range(50 + noise // 1000)]
    room = {"cpu": "128", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"}
    status = {"conditions": conditions, "images": images, "allocatable": room, "capacity": room}
    return {"metadata": meta(number, 40, noise), "status": status}


def kept_bytes(kind: type[KubeObject], texts: list[bytes]) -> float:
    """Return what a view keeps of each object, on average."""
    decoder = msgspec.json.Decoder(kind)
    slim(decoder.decode(texts[0]))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = {found.key: found for found in map(slim, map(decoder.decode, texts))}
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / len(kept)


@pytest.mark.parametrize(
    ("kind", "make", "at_most"), [(Pod, a_pod, 10_000), (Node, a_node, 16_000)], ids=["pod", "node"]
)
def test_an_object_costs_a_view_some_kilobytes_however_much_others_write_on_it(
    kind: type[KubeObject], make: Callable[[int, int], Made], at_most: int
) -> None:
    usual = kept_bytes(kind, [msgspec.json.encode(make(number, 0)) for number in range(MANY)])
    noisy = kept_bytes(kind, [msgspec.json.encode(make(number, 100_000)) for number in range(MANY)])

    assert usual < at_most
    assert noisy < usual * 1.1


def test_only_long_annotations_of_others_are_dropped() -> None:
    long, short = "x" * (LONGEST + 1), "x" * LONGEST
    found = KubeObject(
        metadata=ObjectMeta(name="n", annotations={"a": long, "b": short, ANNOTATION_DRAIN: long})
    )

    assert slim(found).metadata.annotations == {"b": short, ANNOTATION_DRAIN: long}
    assert slim(found).metadata.name == "n"
    assert slim(slim(found)) == slim(found)


def test_of_a_pods_tolerations_as_many_are_kept_as_anybody_needs() -> None:
    tolerations = tuple(Toleration(key=f"t{at}") for at in range(TOLERATIONS_MAX + 1))
    found = Pod(spec=PodSpec(tolerations=tolerations))

    assert slim(found).spec.tolerations == tolerations[:-1]
    assert slim(slim(found)) == slim(found)
