"""In a jail the containers of the simulated Modal see themselves alone."""

import asyncio

from tests.support.modal_stage import modal_stage
from tests.support.sandboxes import content, pieces, run


async def test_a_jailed_container_sees_itself_alone_and_keeps_its_files() -> None:
    async with modal_stage(jailed=True) as stage:
        worker, sandbox = await stage.open_sandbox()
        seen = await run(sandbox, "pwd; id -u; ls /home /var /root 2>&1; ls /proc | grep -c '^[0-9]'")
        assert seen.output.startswith("/workspace\n0\n")
        assert int(seen.output.split()[-1]) < 20
        assert (await run(sandbox, "cat /etc/shadow")).exit_code != 0
        assert (await run(sandbox, "touch /usr/evil")).exit_code != 0
        devices = await run(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
        assert devices.output == "lo\n"
        await sandbox.files.write("file", pieces(b"kept"))
        await run(sandbox, "echo deeper >/root/file")
        await sandbox.close()
        again = await worker.open("thread", fence=2)
        assert await content(again, "file") == b"kept"
        assert (await run(again, "cat /root/file")).output == "deeper\n"


async def test_an_opened_network_is_that_of_the_machine() -> None:
    async with modal_stage(jailed=True) as stage:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nreached")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sandbox = await stage.worker(egress=("*",)).open("thread", fence=1)
        code = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}').read().decode())"
        assert (await run(sandbox, f'python3 -c "{code}"')).output == "reached\n"
        server.close()
        await server.wait_closed()
