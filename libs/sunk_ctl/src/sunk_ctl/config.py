"""Where the kubeconfig is: what kubectl looks at, in its order."""

import os
from collections.abc import Mapping
from pathlib import Path


def kubeconfig(given: Path | None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the kubeconfig: the option, ``KUBECONFIG`` (several with colons), or ``~/.kube/config``."""
    if given is not None:
        return given
    found = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    return Path(found) if found else Path.home() / ".kube/config"
