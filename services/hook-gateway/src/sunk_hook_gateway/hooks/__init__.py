"""What hooks send, and what they are answered. Pure."""
