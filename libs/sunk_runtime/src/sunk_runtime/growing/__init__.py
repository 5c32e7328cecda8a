"""Copies all streams of one NATS server to a cluster of three, for `helm/sunk`. No service imports it."""
