"""The hook gateway: HTTP calls of prolog, epilog and placeholder scripts become questions on the bus."""
