"""The Node Controller: what a NodeSet Pod says, on its Node."""
