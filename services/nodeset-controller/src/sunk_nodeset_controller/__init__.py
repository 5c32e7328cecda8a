"""Everything on Nodes and NodeSet Pods: node sets, conditions, locks."""
