"""The Node Controller: loops over Nodes, and over what is generated from them."""
