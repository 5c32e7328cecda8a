"""What a Pod asks for, and whether Slurm can be asked for it. Pure."""
