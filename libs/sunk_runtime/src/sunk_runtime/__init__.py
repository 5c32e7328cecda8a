"""The chassis: bus, leases, settings, logs, health and life cycle of every service."""
