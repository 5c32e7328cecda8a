"""Metrics beside the documents' table: drains by cause, locks, placements, durations. Pure."""
