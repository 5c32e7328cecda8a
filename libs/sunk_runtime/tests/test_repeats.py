from sunk_runtime.repeats import Repeats


def test_what_thousands_say_at_once_is_told_once_and_later_with_how_many_they_were() -> None:
    repeats = Repeats(every_s=10.0)

    assert repeats.left_out("Slurm is away", 100.0) == 0
    assert [repeats.left_out("Slurm is away", 100.0 + step / 1000) for step in range(3000)] == [None] * 3000
    assert repeats.left_out("NATS is away", 101.0) == 0
    assert repeats.left_out("Slurm is away", 110.0) == 3000
    assert repeats.left_out("Slurm is away", 111.0) is None


def test_reasons_that_never_end_take_no_memory_without_end() -> None:
    repeats = Repeats()
    for number in range(10_000):
        repeats.left_out(f"reason {number}", 0.0)

    assert repeats.left_out("reason 9999", 0.0) is None
    assert repeats.left_out("reason 0", 0.0) == 0
