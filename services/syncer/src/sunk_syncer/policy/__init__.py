"""What the syncer changes in Slurm: drains, Extra, node records, jobs. Pure."""
