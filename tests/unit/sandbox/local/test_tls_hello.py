"""Which site a TLS connection is for: what this program reads is what OpenSSL reads, or it is refused."""

import asyncio
import random
import ssl
from contextlib import suppress

import pytest

from sandbox.local.tls_hello import HELLO_BYTES_MAX, parse_site, read_client_hello
from tests.support.tls import ENCRYPTED_HELLO, tls_hello, with_extension

HELLO = tls_hello("files.example.com")
SERVER_NAME = b"\0\0\0\x06\0\x04\0\0\x01x"


def site_for_openssl(records: bytes) -> str | None:
    """Returns the site that a server with OpenSSL sees, or None if it refuses the hello."""
    sites: list[str] = []

    def take_site(_connection: ssl.SSLObject, site: str | None, _context: ssl.SSLContext) -> int:
        sites.append((site or "").lower().rstrip("."))
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = take_site
    incoming = ssl.MemoryBIO()
    incoming.write(records)
    with suppress(ssl.SSLError):
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    return sites[0] if sites else None


async def read(sent: bytes, *, may_be_encrypted: bool = False) -> str:
    reader = asyncio.StreamReader()
    reader.feed_data(sent)
    reader.feed_eof()
    records, hello = await read_client_hello(reader)
    assert sent.startswith(records)
    return parse_site(hello, may_be_encrypted=may_be_encrypted)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # OpenSSL's module reads only ASCII
async def test_a_changed_hello_is_read_as_openssl_reads_it_or_refused() -> None:
    draw, read_sites = random.Random(1), set[str]()
    for _ in range(3000):
        changed = bytearray(HELLO)
        for _ in range(draw.randint(0, 3)):
            # more often where the lengths and the name stand
            changed[draw.choice((draw.randrange(len(HELLO)), draw.randrange(200)))] = draw.randrange(256)
        with suppress(ValueError, asyncio.IncompleteReadError):
            site = await read(bytes(changed), may_be_encrypted=True)
            read_sites.add(site)
            assert site_for_openssl(bytes(changed)) in (None, site), changed.hex()
    assert len(read_sites) > 20


def in_two_records(hello: bytes) -> bytes:
    first, rest = hello[5:105], hello[105:]
    return b"".join(hello[:3] + len(record).to_bytes(2) + record for record in (first, rest))


@pytest.mark.parametrize(
    ("sent", "site"),
    [
        (HELLO, "files.example.com"),
        (tls_hello("FILES.Example.com"), "files.example.com"),
        (tls_hello(None), ""),
        (HELLO + b"what follows", "files.example.com"),
        (in_two_records(HELLO), "files.example.com"),
        (with_extension(HELLO, b"\xfa\xfa\0\0"), "files.example.com"),
        (with_extension(tls_hello(None), SERVER_NAME), "x"),
    ],
)
async def test_the_site_of_a_hello(sent: bytes, site: str) -> None:
    assert await read(sent) == site


@pytest.mark.parametrize(
    "sent",
    [
        with_extension(HELLO, ENCRYPTED_HELLO),
        with_extension(HELLO, SERVER_NAME),
        with_extension(tls_hello(None), b"\0\0\0\x0a\0\x08\0\0\x01x\0\0\x01y"),
        with_extension(tls_hello(None), b"\0\0\0\x06\0\x04\x01\0\x01x"),
        with_extension(HELLO, b"\xfa\xfa\0\x09"),
        HELLO.replace(b"files", b"f\xffles"),
        HELLO.replace(b"files", b"f les"),
        HELLO[:5] + b"\x02" + HELLO[6:],
        b"\x16\x03\x01\x40\0\x01\xff\xff\xff" + bytes(HELLO_BYTES_MAX * 2),
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-client\r\n",
    ],
)
async def test_what_names_no_site_for_certain_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match="must begin with a TLS connection"):
        await read(sent)


async def test_a_browser_may_send_random_bytes_for_an_encrypted_hello() -> None:
    assert await read(with_extension(HELLO, ENCRYPTED_HELLO), may_be_encrypted=True) == "files.example.com"
