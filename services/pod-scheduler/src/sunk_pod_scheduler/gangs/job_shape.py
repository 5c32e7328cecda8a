"""What all members of a gang have in common, as one job has one of each."""

import hashlib
from functools import lru_cache

import msgspec

from sunk_pod_scheduler.podspec.validation import ValidatedPod


def common(wanted: ValidatedPod) -> tuple[object, ...]:
    """Return what must be the same for all: everything but amounts."""
    gpu_type = wanted.gpu_type if wanted.gpus else ""
    return wanted.asked, wanted.identity, gpu_type, bool(wanted.gpus)


@lru_cache(maxsize=64)
def shape(wanted: ValidatedPod) -> str:
    """Return a digest of `common`, in hex: it is stored, so that who comes later can be held against it.

    What is not given does not count, so that a version that knows of more to ask has the same digest.
    """
    asked, *others = common(wanted)
    given = {key: value for key, value in msgspec.to_builtins(asked).items() if value not in (None, "", [])}
    return hashlib.sha256(msgspec.json.encode((given, *others), order="sorted")).hexdigest()
