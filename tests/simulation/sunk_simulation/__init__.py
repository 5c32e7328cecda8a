"""The services in one process, with virtual time, a network in memory and faults by the seed."""
