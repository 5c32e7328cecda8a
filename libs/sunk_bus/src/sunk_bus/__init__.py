"""`sunk-bus`: facts, states and dead letters for people to look at. No service imports it."""
