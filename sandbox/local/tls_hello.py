"""Reads the first message of a TLS connection (RFC 8446, section 4.1.2), to find out which site the client connects
to."""

from asyncio import StreamReader

from sandbox.local.egress_policy import NAME

HELLO_BYTES_MAX = 64 * 1024
NO_HELLO = "A tunnel must begin with a TLS connection that names one site, and shows its name."
_HANDSHAKE, _CLIENT_HELLO = b"\x16\x03", b"\x01"
_SERVER_NAME, _ENCRYPTED_HELLO = b"\x00\x00", b"\xfe\x0d"
_HOST_NAME = b"\x00"
_VERSION_AND_RANDOM_BYTES = 34


class _Fields:
    """Reads the fields of a message one after the other."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def take(self, length: int) -> bytes:
        field, self._rest = self._rest[:length], self._rest[length:]
        if len(field) < length:
            raise ValueError(NO_HELLO)
        return field

    def take_vector(self, length_bytes: int) -> bytes:
        """Returns a field that is preceded by its length."""
        return self.take(int.from_bytes(self.take(length_bytes)))

    @property
    def is_over(self) -> bool:
        return not self._rest


async def read_client_hello(reader: StreamReader) -> tuple[bytes, bytes]:
    """Returns all bytes up to the end of the client's hello, and the hello itself. Raises ValueError for anything else,
    and IncompleteReadError."""
    records, hello = b"", b""
    while len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4]):
        header = await reader.readexactly(5)
        if not header.startswith(_HANDSHAKE) or len(records) > HELLO_BYTES_MAX:
            raise ValueError(NO_HELLO)
        record = await reader.readexactly(int.from_bytes(header[3:]))
        records, hello = records + header + record, hello + record
    return records, hello


def parse_site(hello: bytes, *, may_be_encrypted: bool) -> str:
    """Returns the site that a client's hello names, or "" if it names none. `may_be_encrypted` is true if another site
    may be named in a part that only the server can read. Raises ValueError if servers might parse the hello in
    different ways."""
    message = _Fields(hello)
    kind, body = message.take(1), _Fields(message.take_vector(3))
    body.take(_VERSION_AND_RANDOM_BYTES)
    for length_bytes in (1, 2, 1):  # the session's id, the ciphers and the compressions
        body.take_vector(length_bytes)
    listed, extensions = _Fields(body.take_vector(2)), list[tuple[bytes, bytes]]()
    while not listed.is_over:
        extensions.append((listed.take(2), listed.take_vector(2)))
    values = dict(extensions)
    is_read_alike = kind == _CLIENT_HELLO and message.is_over and body.is_over and len(values) == len(extensions)
    if not is_read_alike or (_ENCRYPTED_HELLO in values and not may_be_encrypted):
        raise ValueError(NO_HELLO)
    if _SERVER_NAME not in values:
        return ""
    field = _Fields(values[_SERVER_NAME])
    names = _Fields(field.take_vector(2))
    kind, name = names.take(1), names.take_vector(2)
    site = name.decode("ascii", "replace").lower().rstrip(".")
    if kind != _HOST_NAME or not names.is_over or not field.is_over or not NAME.fullmatch(site):
        raise ValueError(NO_HELLO)
    return site
