import itertools
from collections.abc import AsyncIterator

import anyio
from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.following import split_lines


async def _lines(chunks: list[bytes]) -> list[bytes]:
    async def feed() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [line async for line in split_lines(feed())]


@given(st.lists(st.binary(max_size=9).map(lambda part: part.replace(b"\n", b"")), max_size=6), st.data())
def test_lines_come_whole_however_the_network_cuts_them(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"no end yet"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]

    assert anyio.run(_lines, chunks) == [line for line in lines if line]


def test_a_line_of_many_megabytes_is_no_matter() -> None:
    long = b"x" * (9 << 20)

    assert anyio.run(_lines, [long[: 5 << 20], long[5 << 20 :] + b"\n"]) == [long]
