"""A program of its own: makes and renews a server's certificate (`generate` in both charts)."""
