"""Kubernetes and Slurm, as the scheduler needs them."""
