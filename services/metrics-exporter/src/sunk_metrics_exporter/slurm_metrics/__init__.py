"""The documents' table of metrics: what each state of Slurm adds to it, as Prometheus reads it. Pure."""
