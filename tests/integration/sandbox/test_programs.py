"""Common programs work in a jail, with its filter of system calls: whatever of them this machine has installed."""

import shutil

from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import local_jails, pieces, run

PYTHON = """
import asyncio, ctypes, fcntl, mmap, multiprocessing, multiprocessing.shared_memory, os, pty, select, shutil, signal
import socket, sqlite3, subprocess, tempfile, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def square(number): return number * number

def main():
    with ThreadPoolExecutor(4) as threads, ProcessPoolExecutor(2) as processes:
        assert list(threads.map(square, range(9))) == list(processes.map(square, range(9)))
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 20)
    shared.close(); shared.unlink()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 20)); file.flush(); os.fsync(file.fileno())
        fcntl.flock(file, fcntl.LOCK_EX); os.posix_fallocate(file.fileno(), 0, 1 << 20)
        mmap.mmap(file.fileno(), 0).close()
    database = sqlite3.connect("made.db")
    database.executescript("pragma journal_mode=wal; create table a (b); insert into a values (1);")
    assert subprocess.run("echo $((6 * 7)) | cat", shell=True, capture_output=True, text=True).stdout == "42\\n"
    assert pty.spawn(["true"]) == 0
    signal.setitimer(signal.ITIMER_REAL, 0.01); signal.sigwait([signal.SIGALRM]) if False else None
    signal.setitimer(signal.ITIMER_REAL, 0)
    server = socket.create_server(("127.0.0.1", 0)); client = socket.create_connection(server.getsockname())
    os.sendfile(client.fileno(), os.open("made.db", os.O_RDONLY), 0, 100); shutil.copytree(".", "/tmp/copy")
    assert socket.if_nameindex() and os.sched_getaffinity(0) and os.getrandom(8)
    os.memfd_create("x"); os.eventfd(0); os.pidfd_open(os.getpid())
    async def asynchronous():
        program = await asyncio.create_subprocess_exec("true")
        return await program.wait()
    assert asyncio.run(asynchronous()) == 0
    print("good")

if __name__ == "__main__": main()
"""
NODE = """
const { Worker, isMainThread } = require("worker_threads");
if (isMainThread) {
  const fs = require("fs"), child = require("child_process"), http = require("http");
  fs.writeFileSync("from-node", "x"); fs.watch(".").close();
  child.execSync("true");
  const server = http.createServer((_, answer) => answer.end("y")).listen(0, "127.0.0.1", async () => {
    await fetch(`http://127.0.0.1:${server.address().port}`, {dispatcher: undefined}).then((r) => r.text());
    server.close();
    new Worker(__filename).on("exit", (code) => { console.log(code === 0 ? "good" : "bad"); });
  });
}
"""
C = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *work(void *made) { return made; }
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0) || fork() < 0) return 1;
  return write(1, "good\\n", 5) != 5;
}
"""
FILES = {"try.py": PYTHON, "try.js": NODE, "try.c": C}
COMMANDS = {
    "python3": "python3 try.py | tail -1",
    "node": "env -u NODE_USE_ENV_PROXY node try.js",
    "gcc": "gcc -pthread -o made try.c && ./made | head -1",
    "git": "git init -q g && cd g && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x"
    " && git gc -q && git clone -q . ../h && echo good",
    "tar": "tar czf made.tgz try.* && tar xzf made.tgz && xz -k try.py && gzip -k try.py && echo good",
    "bash": "mkfifo p; (echo good > p &); cat p",
    "find": "find . -name 'try.*' -print0 | xargs -0 -P 4 -n 1 cat > /dev/null && echo good",
    "make": "printf 'all: a b\\na b:\\n\\t@true\\n' > Makefile && make -j4 > /dev/null && echo good",
    "java": "printf 'class A{public static void main(String[] a){System.out.println(\"good\");}}' > A.java"
    " && java -XX:-UsePerfData A.java",
    "sqlite3": "sqlite3 s.db 'pragma journal_mode=wal; create table a(b);' > /dev/null && echo good",
    "perl": 'perl -e \'use threads; system("true") == 0 and print "good\\n"\' || perl -e \'print "good\\n"\'',
    "openssl": "openssl rand -hex 8 > /dev/null && openssl genrsa 2048 > /dev/null 2>&1 && echo good",
    "curl": "(python3 -m http.server 8123 >/dev/null 2>&1 &) ; sleep 1; "
    "curl -s --noproxy '*' http://127.0.0.1:8123/ > /dev/null && echo good",
    "rsync": "rsync -a try.py other/ && echo good",
    "timeout": "timeout 5 nice -n 5 flock lock stdbuf -oL echo good",
}


async def test_common_programs_work() -> None:
    installed = [name for name in COMMANDS if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")]
    if not {"python3", "bash", "tar"} <= set(installed):
        lacking("jail", "this machine has too few programs")
    async with local_jails() as jails:
        sandbox = await jails.open("thread", fence=1)
        for name, content in FILES.items():
            await sandbox.files.write(name, pieces(content.encode()))
        found = {
            name: await run(sandbox, f"cd /workspace; {COMMANDS[name]}", session=name, seconds=60) for name in installed
        }
    failed = {name: done for name, done in found.items() if done.output != "good\n"}
    assert failed == {}
