"""The model of Kubernetes: an API server that speaks HTTP, its controllers, kubelets.

What it knows is what our services ask, and what a user or an administrator may do to them.
"""
