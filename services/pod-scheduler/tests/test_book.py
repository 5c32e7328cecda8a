"""What callers asked for is of one life of a job's number: slurmctld that lost its state gives it anew."""

from msgspec.structs import replace

from sunk_pod_scheduler.book import Announcement, Book
from sunk_pod_scheduler.outcomes import is_another
from sunk_pod_scheduler.testing import JOB, SLURM_NODE, UID, job, placement


def test_an_epilog_that_asks_for_a_job_that_waits_or_runs_is_of_an_earlier_job_of_its_number() -> None:
    book = Book()
    book.ask_release(UID, JOB, is_epilog=True)

    assert not book.is_release_asked(UID, JOB, is_alive=True)
    assert book.is_release_asked(UID, JOB)  # Slurm has ended it, or does not know it, or does not say.
    assert not book.is_release_asked(UID, JOB + 1)

    book.ask_release(UID, JOB)  # Its script says so, with the token of this very attempt.
    book.ask_release(UID, JOB, is_epilog=True)
    assert book.is_release_asked(UID, JOB, is_alive=True)


def test_what_was_said_of_a_lost_job_is_not_said_of_the_next_that_has_the_same_number() -> None:
    before = placement("bound", node=SLURM_NODE)
    again = replace(before, phase="submitted", attempt=1)

    assert is_another(before, again)
    assert is_another(before, None)
    assert not is_another(before, replace(before, phase="ending"))
    assert not is_another(None, before)
    book = Book()
    book.ask_release(UID, JOB)
    book.announce(UID, Announcement(JOB, SLURM_NODE))
    book.hear(UID, JOB, "cut")
    book.forget(UID)
    assert (book.announced_on(UID, JOB), book.voice(UID, JOB), book.is_release_asked(UID, JOB)) == (
        "",
        "",
        False,
    )


def test_a_job_that_slurm_ends_is_not_alive_any_more() -> None:
    assert [job(base).is_alive for base in ("PENDING", "RUNNING", "SUSPENDED", "CANCELLED")] == [
        True,
        True,
        True,
        False,
    ]
    assert not job("PENDING", is_completing=True).is_alive  # It was requeued, and its epilog runs.
