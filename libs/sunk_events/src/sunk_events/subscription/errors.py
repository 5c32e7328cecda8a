"""What ends a subscriber, named for what its caller does next."""


class SubscriberError(Exception):
    """Facts do not come; the text says why, and what to do."""


class UnreachableError(SubscriberError):
    """NATS did not answer; it may later."""


class RefusedError(SubscriberError):
    """NATS refuses what was asked, and goes on doing so until something is changed."""
