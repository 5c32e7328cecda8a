"""The contract: every event, state and request of the bus, and where it lives."""
