"""Gangs: Pods of one workload that one Slurm job places together. Pure."""
