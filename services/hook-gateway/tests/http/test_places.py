from contextlib import ExitStack

import pytest

from sunk_hook_gateway.http.places import Places
from sunk_runtime.errors import TransientError


def test_nobody_takes_all_places_and_who_leaves_makes_room() -> None:
    places = Places(4, 2)
    with ExitStack() as held:
        for who in ("a", "a", "b"):
            held.enter_context(places.one(who))
        with pytest.raises(TransientError), places.one("a"):
            pass
        held.enter_context(places.one("c"))
        with pytest.raises(TransientError), places.one("d"):
            pass

    with places.one("a"), places.one("a"), places.one("b"), places.one("d"):
        pass


def test_callers_without_a_name_have_only_the_bound_for_all() -> None:
    places = Places(3, 1)

    with places.one(""), places.one(""), places.one(""), pytest.raises(TransientError), places.one(""):
        pass
