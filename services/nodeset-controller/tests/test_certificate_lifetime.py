"""What metrics say of the certificate's life, also where it cannot be read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_nodeset_controller.certificate_lifetime import show_lifetime
from sunk_nodeset_controller.certificates import issuing
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def shown(file: Path) -> list[float | None]:
    """Return start and end as they would be scraped."""
    names = (f"sunk_nats_certificate_{moment}_timestamp_seconds" for moment in ("start", "end"))
    return [REGISTRY.get_sample_value(name, {"file": str(file)}) for name in names]


def certificate(made: datetime) -> bytes:
    return issuing.new_server(issuing.new_authority("test", T0), ["nats"], made).crt


def life(made: datetime) -> list[float | None]:
    """What is shown of a certificate that was made at that moment."""
    return [(made - timedelta(hours=1)).timestamp(), (made + issuing.SERVER_LIFE).timestamp()]


async def test_the_last_certificate_that_could_be_read_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "tls.crt"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: show_lifetime(file, look_s=0.01))
        await until(lambda: shown(file) == [0.0, 0.0])

        file.write_bytes(certificate(T0))
        await until(lambda: shown(file) == life(T0))
        for broken in (b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff"):
            file.write_bytes(broken)
            await anyio.sleep(0.1)  # Some looks.
            assert shown(file) == life(T0)
        renewed = T0 + timedelta(days=60)
        file.write_bytes(certificate(renewed))
        await until(lambda: shown(file) == life(renewed))
        tasks.cancel_scope.cancel()
