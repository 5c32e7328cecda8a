"""Kubernetes: well-known names, a reflector and a client of the API server."""
