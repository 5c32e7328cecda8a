"""The read-only HTTP API for people: why it is so, from what is on the bus, behind the API server."""
