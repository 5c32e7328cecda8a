"""The loop's way in, and the same loop for gangs."""
