"""NodeSet Pods: the state of their Node and of Slurm, as shown on the Pod and on the bus. Pure."""
