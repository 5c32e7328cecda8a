"""Answers to placeholders' scripts, to epilogs and to people."""
