"""A web server to run inside a sandbox. Uses only the standard library; echoes, streams, and speaks WebSocket.

Started as `web_inside.py PORT_FILE`.
"""

import base64
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
stepping = threading.Event()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_expect_100(self) -> bool:
        """Many servers do not say that a body may come."""
        return self.path == "/silent" or super().handle_expect_100()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        {"/ws": self.talk, "/cookie": self.cookie, "/away": self.away}.get(path, self.more)(path)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def more(self, path: str) -> None:
        if path == "/big":
            self.chunks([bytes([number]) * 65_536 for number in range(80)])
        elif path == "/steps":
            self.steps()
        elif path == "/hang-up":
            self.close_connection = True
        else:
            self.echo()

    def echo(self) -> None:
        body = self.body()
        told = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "sha256": hashlib.sha256(body).hexdigest(),
            "length": len(body),
        }
        self.answer(200, json.dumps(told).encode(), {"Content-Type": "application/json", "X-Inside": "1"})

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def cookie(self, _: str) -> None:
        self.answer(
            200, b"", {"Set-Cookie": "a=1; Domain=example.org; Path=/", "Strict-Transport-Security": "max-age=9"}
        )

    def away(self, _: str) -> None:
        self.answer(302, b"", {"Location": f"http://localhost:{self.server.server_address[1]}/there?x=1"})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunks(self, pieces: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in [*pieces, b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def steps(self) -> None:
        """Sends the first piece, and the second piece after a request to `/steps?go`."""
        if self.path.endswith("?go"):
            stepping.set()
            self.answer(200, b"", {})
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        stepping.wait(60)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")

    def talk(self, _: str) -> None:
        key = self.headers["Sec-WebSocket-Key"] + GUID
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header(
            "Sec-WebSocket-Accept",
            base64.b64encode(hashlib.sha1(key.encode()).digest()).decode(),  # noqa: S324
        )
        if "chat" in self.headers.get("Sec-WebSocket-Protocol", ""):
            self.send_header("Sec-WebSocket-Protocol", "chat")
        self.end_headers()
        self.close_connection = True
        while (frame := self.frame()) is not None:
            kind, content = frame
            if kind == 8:
                self.wfile.write(bytes([0x88, len(content)]) + content)
                return
            if content == b"bye":
                self.wfile.write(bytes([0x88, 2]) + (1001).to_bytes(2, "big"))
                return
            length = bytes([len(content)]) if len(content) < 126 else b"\x7e" + len(content).to_bytes(2, "big")
            self.wfile.write(bytes([0x80 | kind]) + length + content)

    def frame(self) -> "tuple[int, bytes] | None":
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        length = head[1] & 0x7F
        if length == 126:
            length = int.from_bytes(self.rfile.read(2), "big")
        mask, content = self.rfile.read(4), self.rfile.read(length)
        return head[0] & 0x0F, bytes(one ^ mask[at % 4] for at, one in enumerate(content))

    def log_message(self, *_: object) -> None:
        return None


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    fresh = Path(f"{sys.argv[1]}.new")
    fresh.write_text(str(server.server_address[1]))
    fresh.rename(sys.argv[1])
    server.serve_forever()
