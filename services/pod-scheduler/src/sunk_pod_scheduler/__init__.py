"""Pods to placeholder jobs to bindings."""
