"""A model of one nats-server with JetStream, which speaks NATS' client protocol.

What must stay true: it passes the very tests that nats-server passes (`test_bus_contract.py`); where the two
differ, this one is wrong.

Source: nats-server 2.15.1, measured, and its source where a comment says so; NATS ADR-8, 37, 43, 60.
"""
