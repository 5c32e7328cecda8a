"""Slurm's truth to the bus; wanted drains from the bus to Slurm."""
