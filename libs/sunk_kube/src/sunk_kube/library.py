# pyright: reportUnknownVariableType=false, reportUnusedImport=false
"""kubernetes_asyncio without its models: its configuration and its `ApiClient`. For `api` alone.

Whatever is imported of it, it reads the code of 700 models with it: 37 MB and 0.2 s of a start, for objects
that msgspec decodes into our structs. The packages that do so are read when somebody asks for what only
they have.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any


def _postpone(name: str) -> None:
    """Put the package *name* in its place, to be read when it is asked for a name that it does not have."""
    parent, _, last = name.rpartition(".")
    spec = PathFinder.find_spec(name, sys.modules[parent].__path__ if parent else None)
    if name in sys.modules or spec is None or spec.loader is None:  # It is read already, or not installed.
        return
    loader, module = spec.loader, module_from_spec(spec)

    def read(attribute: str) -> Any:  # noqa: ANN401 - a module has everything
        del module.__dict__["__getattr__"]
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = read
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], last, module)


for _name in ("kubernetes_asyncio", "kubernetes_asyncio.client", "kubernetes_asyncio.client.models"):
    _postpone(_name)

import kubernetes_asyncio.client.rest  # noqa: E402
from kubernetes_asyncio.client.api_client import ApiClient  # noqa: E402
from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402

kubernetes_asyncio.client.ApiClient = ApiClient
kubernetes_asyncio.client.Configuration = Configuration
from kubernetes_asyncio.config.config_exception import ConfigException  # noqa: E402
from kubernetes_asyncio.config.incluster_config import load_incluster_config  # noqa: E402
from kubernetes_asyncio.config.kube_config import load_kube_config  # noqa: E402

__all__ = ["ApiClient", "ConfigException", "Configuration", "load_incluster_config", "load_kube_config"]
