"""Nodes: what their NodeSet Pods say of them. Pure."""
