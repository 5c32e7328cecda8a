"""How `sunk_events.subscriber` reads: what is on the way, and the connection that it comes by."""
