"""Kubernetes and the bus, as this service needs them."""
