"""Slurm: its words, its states and a client of slurmrestd."""
