"""NodeSet Pods: what Node and Slurm say of them, on the Pod and on the bus. Pure."""
