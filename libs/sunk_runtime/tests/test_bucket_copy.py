"""What a process knows of a bucket, without one."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sunk_events.nodes import SlurmNodeState
from sunk_runtime.bucket_copy import BucketCopy

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = st.sampled_from(["d1", "d2", "d3", "d4"])
REVISIONS = st.integers(1, 12)
DEEDS = st.one_of(
    st.tuples(st.sampled_from(["write", "end", "correct"]), KEYS, REVISIONS),
    st.tuples(st.just("drop"), KEYS, st.just(0)),
)


@given(st.lists(DEEDS), REVISIONS)
def test_what_changed_after_a_revision_is_known_in_whichever_order_it_came(
    deeds: list[tuple[str, str, int]], revision: int
) -> None:
    copy = BucketCopy[SlurmNodeState]("bucket")
    for what, key, at in deeds:
        node = SlurmNodeState(changed=T0, node=key, state="IDLE")
        match what:
            case "write":
                copy.apply_own(key, node, at)
            case "end":
                copy.apply_own(key, None, at)
            case "correct":
                copy.correct(key, node, at)
            case _:
                copy.drop(key)
    known = {key: copy.revision(key) for key in ("d1", "d2", "d3", "d4")}

    newest, changed = copy.after(revision)

    assert newest == max(known.values())
    assert sorted(changed) == [key for key in known if known[key] > revision]
