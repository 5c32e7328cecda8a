"""Real servers on one machine: NATS, Slurm and Kubernetes without a container engine."""
