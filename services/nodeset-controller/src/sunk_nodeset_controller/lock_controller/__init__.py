"""The lock manager of one Slurm cluster: a loop over its nodes, and the answers to those who ask."""
