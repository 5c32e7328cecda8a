"""What Slurm shows, as states and events of the bus. Pure."""
