"""The NodeSet Controller: a loop over NodeSets."""
