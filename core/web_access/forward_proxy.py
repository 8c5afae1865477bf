"""The operator's proxy, through which connections to the internet are made for a model."""

import asyncio
from asyncio import StreamReader, StreamWriter
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_HEAD_BYTES_MAX = 1 << 16


class ProxyFailed(OSError):
    """Raised if the proxy does not connect to the target. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardProxy:
    """An HTTP proxy. `user` and `password` may be empty; they are sent only to the proxy."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Returns the header with which the proxy is asked."""
        if not self.user:
            return {}
        return {"Proxy-Authorization": f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}

    async def connect(self, address: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """Opens a tunnel to an IP address. Raises OSError, which includes ProxyFailed."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=_HEAD_BYTES_MAX)
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        headers = {"Host": target, **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        try:
            writer.write(f"CONNECT {target} HTTP/1.1\r\n{lines}\r\n".encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status = head.split(b"\r\n", 1)[0].split(b" ")[1:2]
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.transport.abort()
            raise ProxyFailed(f"the proxy {self.url} gave no answer") from error
        except BaseException:
            writer.transport.abort()
            raise
        if status != [b"200"]:
            writer.transport.abort()
            shown = b"".join(status)[:20].decode("ascii", "replace")
            raise ProxyFailed(f"the proxy {self.url} answered {shown} instead of opening a tunnel")
        return reader, writer


def parse_forward_proxy(server: str, user: str = "", password: str = "") -> ForwardProxy:
    """Parses `http://HOST:PORT`. Raises ValueError with the reason."""
    parts = urlsplit(server)
    if parts.scheme != "http" or not parts.hostname or not parts.port or parts.path.strip("/"):
        raise ValueError(f"{parts.hostname or 'this'} is not a proxy such as http://proxy.example.com:8080")
    if parts.username or parts.password:
        raise ValueError("give the user and the password in settings of their own")
    return ForwardProxy(host=parts.hostname, port=parts.port, user=user, password=password)
