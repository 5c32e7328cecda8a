"""Slurm and the bus, as the syncer needs them."""
