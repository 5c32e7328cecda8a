"""The Pod Controller: what Node and Slurm say of a NodeSet Pod, on the Pod and on the bus."""
