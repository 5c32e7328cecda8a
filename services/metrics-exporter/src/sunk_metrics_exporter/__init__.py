"""The metrics exporter: state and facts on the bus become Prometheus metrics."""
