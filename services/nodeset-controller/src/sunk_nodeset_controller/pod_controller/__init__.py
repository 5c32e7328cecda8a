"""The Pod Controller: loops over NodeSet Pods."""
