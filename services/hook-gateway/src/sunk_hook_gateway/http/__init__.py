"""Answers to calls that come by HTTP."""
