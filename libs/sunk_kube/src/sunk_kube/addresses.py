"""The address of an API server, and the proxy on the way to it, by the environment, as for client-go."""

from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for *url*, if it names one.

    As for client-go, a port or a network may stand in ``no_proxy``, too.
    """
    parts, named = urlsplit(url), getproxies()
    host = parts.hostname or ""
    is_direct = proxy_bypass(parts.netloc) or proxy_bypass(host) or _is_within(host, named.get("no", ""))
    return None if is_direct else named.get(parts.scheme)


def _is_within(host: str, networks: str) -> bool:
    for network in networks.split(","):
        with suppress(ValueError):  # Of a name.
            if ip_address(host) in ip_network(network.strip(), strict=False):
                return True
    return False


def checked(url: str) -> str:
    """Return *url*. Raises `ValueError`: it can be no HTTP server's, which each call would end with."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError(f"{parts.scheme}://{parts.hostname} is not an address of an HTTP server")
    parts.hostname.encode("idna")
    return url
