"""Makes the mirrors on the NATS server of other teams, for `helm/sunk`. No service imports it."""
