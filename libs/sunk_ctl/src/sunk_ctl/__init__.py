"""`sunkctl`, also `kubectl sunk`: what Slurm and Kubernetes do together, and why, for people."""
