"""What tests of Pods through Slurm need."""
