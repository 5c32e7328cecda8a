"""What the fault tests and the soak share: a real service of the chassis, ways to kill it, and a judge.

Nothing here runs in a service. It needs the lab's servers.
"""
