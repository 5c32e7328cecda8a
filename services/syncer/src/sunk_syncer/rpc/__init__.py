"""Answers to other services' questions."""
