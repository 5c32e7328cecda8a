"""The lock of a Node: no Slurm job starts there while another workload runs. Pure."""
