"""The lab's NATS in a real container engine."""

# pyright: reportUnknownMemberType=false
# nats-py is partly untyped.

import os
import shutil
from dataclasses import replace
from pathlib import Path

import nats
import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.which_nats import nats_of

pytestmark = [pytest.mark.engine, pytest.mark.anyio]


async def test_nats_runs_in_a_container_and_stores(tmp_path: Path) -> None:
    config = from_environment()
    if not config.is_nats_in_engine and os.geteuid() != 0 and not shutil.which("docker"):
        pytest.skip("needs Docker, or root for podman")
    server = nats_of(replace(config, nats_url="", is_nats_in_engine=True), tmp_path)
    try:
        server.start()
        client = await nats.connect(server.url)
        bucket = await client.jetstream().create_key_value(bucket="lab")
        revision = await bucket.put("key", b"value")
        await client.close()
    finally:
        server.stop()

    assert revision == 1
    with pytest.raises(LabError, match="start it first"):
        _ = server.url
