"""The model of Slurm: slurmctld, slurmrestd, slurmd and slurmdbd, with the scripts that they start.

Source: Slurm 24.11 and 26.05, measured on the real ones; where the two differ the model is wrong.
"""
