# ruff: noqa: E402
# pyright: reportUnknownVariableType=false
"""kubernetes_asyncio without its models: its configuration and its `ApiClient`. For `api` alone.

Whatever is imported of it, it reads the code of 700 models with it: 37 MB and 0.2 s of a start, for objects
that msgspec decodes into our structs. The packages that do so stay empty here, unless they were read before.
"""

import sys
from importlib.util import find_spec, module_from_spec

for _name in ("kubernetes_asyncio", "kubernetes_asyncio.client", "kubernetes_asyncio.client.models"):
    if _name not in sys.modules and (_spec := find_spec(_name)):
        sys.modules[_name] = module_from_spec(_spec)

from kubernetes_asyncio import client
from kubernetes_asyncio.client.api_client import ApiClient
from kubernetes_asyncio.client.configuration import Configuration

client.ApiClient, client.Configuration = ApiClient, Configuration  # Its configuration looks for them there.
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.incluster_config import load_incluster_config
from kubernetes_asyncio.config.kube_config import load_kube_config

__all__ = ["ApiClient", "ConfigException", "Configuration", "load_incluster_config", "load_kube_config"]
