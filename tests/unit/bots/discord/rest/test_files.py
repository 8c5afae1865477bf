"""Files on their way out."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.discord.rest.files import prepare_upload, safe_file_name
from core.domain.errors import SurfaceRefused
from core.ports import OutgoingFile


@given(st.text(max_size=400))
def test_any_name_is_safe_in_a_header(name: str) -> None:
    safe = safe_file_name(name)
    assert safe
    assert len(safe.encode("utf-16-le")) // 2 <= 220
    assert not set(safe) & set('"/\\\r\n\t\x00')


async def test_a_file_that_is_larger_than_it_said_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 10

    file = OutgoingFile(name="a.bin", size_bytes=10, pieces=pieces())
    with pytest.raises(SurfaceRefused) as refused:
        async with prepare_upload([file], bytes_max=20):
            pytest.fail("too large")
    assert refused.value.code == "too_large"
