"""Each call from its question to its answer: look, ask, wait."""
