"""Whether so many are missing at once that the answer is doubted, and not each of them gone; pure."""


def is_mass_loss(missing: int, known: int, *, percent: int, few: int = 0) -> bool:
    """Return whether more are *missing* than *few*, and more than *percent* of all that were *known*.

    Each caller has its own numbers: of nodes fewer go at once than of Pods.
    """
    return missing > max(few, known * percent / 100)
