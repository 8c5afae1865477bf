"""What a client sends first over TLS."""

import ssl
from contextlib import suppress

ENCRYPTED_HELLO = b"\xfe\x0d\x00\x01\x00"
_HEADERS_AND_RANDOM = 5 + 4 + 34


def tls_hello(site: str | None) -> bytes:
    """Returns the client's hello as OpenSSL writes it, for this site or for none."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=site).do_handshake()
    return sent.read()


def with_extension(hello: bytes, extension: bytes) -> bytes:
    """Returns the hello with the extension at its end, and all lengths as they must be."""
    changed, at = bytearray(hello + extension), _HEADERS_AND_RANDOM
    for length_bytes in (1, 2, 1):
        at += length_bytes + int.from_bytes(changed[at : at + length_bytes])
    for place, length_bytes in ((3, 2), (6, 3), (at, 2)):
        length = int.from_bytes(changed[place : place + length_bytes]) + len(extension)
        changed[place : place + length_bytes] = length.to_bytes(length_bytes)
    return bytes(changed)
