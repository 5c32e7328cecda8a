"""NATS' certificate, made and renewed in the cluster (ADR 0039), with `nats.tls.generate` of helm/sunk."""
