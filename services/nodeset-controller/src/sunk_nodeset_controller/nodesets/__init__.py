"""NodeSets: which Nodes, which Pods, and what to tell about them. Pure."""
