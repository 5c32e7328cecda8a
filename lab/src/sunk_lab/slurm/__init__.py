"""Real Slurm for the lab: Debian's own, in two versions, on the machine itself or in Pods."""
