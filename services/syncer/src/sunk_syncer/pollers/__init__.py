"""Slurm to the bus, again and again."""
