"""One loop for each thing that is kept as it shall be. Only the leader runs them."""
