"""Abuses `denseformer serve` over real connections on loopback and watches what becomes of it.

    serve_abuse.py PROGRAM [--long] [--json]

Clients that connect and leave, malformed HTTP, random requests, oversized bodies, one that does not read, and many streams at
once of which 64 generate. The server must answer or close every connection, its memory must come back to what it was, and the
streams of other clients must be the same bytes as those of a client alone. The default takes seconds; --long is 1,000 connects,
10,000 random requests and 1,000 streams. Needs nothing but Python's standard library.
"""
import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RUNNING = 64  # texts generated at the same time
STREAMS_MEMORY = 150 << 20  # the most that all streams together may take beyond the model
GROWTH = 16 << 20  # the most by which memory may have grown at the end


class Failure(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Failure(what)


class Server:
    """The program on a free port, with a small model that it trains first."""

    def __init__(self, program, directory):
        text, data, run = (os.path.join(directory, name) for name in ("text.txt", "data", "run"))
        with open(text, "w") as file:
            file.writelines(f"the quick brown fox jumps over {n} lazy dogs\n" for n in range(100))
        quiet = {"check": True, "stdout": subprocess.DEVNULL}
        subprocess.run([program, "data", "prepare", text, "--tokenizer", "bytes", "--output", data, "--quiet"], **quiet)
        subprocess.run([program, "train", run, "--preset", "test", "--dwa", "1x1", "--data", data, "--steps", "20",
                        "--threads", "1", "--quiet"], **quiet)
        self.program, self.run = program, run
        self.process = self.start(run)
        self.port = self.wait(self.process)
        self.loaded = self.memory()  # with the model, before any request

    def start(self, run):
        return subprocess.Popen(
            [self.program, "serve", run, "--port", "0", "--threads", "1", "--max-running", str(RUNNING), "--read-seconds", "2",
             "--max-sequences", "2048", "--max-queue-tokens", str(1 << 40), "--drain-seconds", "60"],
            stderr=subprocess.PIPE, text=True)

    @staticmethod
    def wait(process):
        """Waits until the model is loaded; the port."""
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        require(found, f"the server said: {line}")
        while "ready" not in line:
            line = process.stderr.readline()
            require(line, "the server ended")
        return int(found.group(1))

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) << 10

    def sanitized(self):
        """A sanitizer keeps freed memory for a while, and reports leaks at the end by itself."""
        with open(f"/proc/{self.process.pid}/maps") as file:
            return "libasan" in file.read()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=120)
        require(self.process.returncode == 0, f"the server ended with status {self.process.returncode}: {said[-2000:]}")


async def connect(server):
    for _ in range(50):
        try:
            return await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
        except ConnectionError:  # the queue of the system is full for a moment
            await asyncio.sleep(0.02)
    raise Failure("the server takes no connections")


async def send(server, data, seconds=60):
    """All that the server answers to these bytes before it closes the connection."""
    reader, writer = await connect(server)
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), seconds)
    except ConnectionError:
        return b""
    except asyncio.TimeoutError:
        raise Failure(f"no end of the answer within {seconds} seconds to {data[:500]}")
    finally:
        writer.close()


def post(path, body, version="1.0"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/{version}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def get(server, path):
    return (await send(server, f"GET {path} HTTP/1.0\r\n\r\n".encode())).decode()


async def metric(server, name):
    found = re.search("^" + re.escape(name) + " (.*)$", await get(server, "/metrics"), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


async def counts(server, names):
    """The values of these counters at one moment."""
    text = await get(server, "/metrics")
    return {name: int(re.search(f"^denseformer_{name} (\\d+)", text, re.MULTILINE).group(1)) for name in names}


async def idle(server):
    """Waits until nothing is in work and no connection but the one that asks is open."""
    for _ in range(600):
        text = await get(server, "/metrics")
        if all(re.search(f"^denseformer_{name}$", text, re.MULTILINE)
               for name in ("connections 1", "sequences_running 0", "sequences_waiting 0", "unsent_bytes 0")):
            return
        await asyncio.sleep(0.1)
    raise Failure("the server does not come to rest")


def text_request(n, tokens):
    return {"prompt": "the quick brown"[:3 + n % 12], "max_tokens": tokens, "seed": n, "temperature": 0.5 + n % 3 / 4,
            "ignore_eos": True, "context": "slide", "stream": True}


def content(answer):
    """What a stream says, without the name and the time of the request."""
    require(answer.startswith(b"HTTP/1.1 200") or answer.startswith(b"HTTP/1.0 200"), f"got {answer[:200]}")
    require(answer.endswith(b"data: [DONE]\n\n"), f"a stream ended with {answer[-200:]}")
    events = answer[answer.index(b"\r\n\r\n"):]
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", events)


async def steady(server, expected, stop):
    """A well-behaved client: one text after the other, each the same as alone. The number of texts."""
    done = 0
    while not stop.is_set() or done == 0:
        n = done % len(expected)
        require(content(await send(server, post("/v1/completions", text_request(n, 20)))) == expected[n],
                f"text {n} differs in company")
        done += 1
    return done


async def many(count, at_once, work):
    """work(n) for n < count, at most at_once at a time."""
    numbers = iter(range(count))

    async def worker():
        for n in numbers:
            await work(n)

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def leave(server, n):
    """Connects and leaves: at once, within a request, after one, or within a stream."""
    reader, writer = await connect(server)
    request = post("/v1/completions", text_request(n, 1 << 20))
    writer.write((b"", request[:n % len(request)], request, request)[n % 4])
    await writer.drain()
    if n % 4 == 3:
        await reader.read(100)
    if n % 3 == 0:  # an abrupt end: a reset instead of a farewell
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.close()


MALFORMED = [
    b"",  # connects and says nothing
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTQ/1.1\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3",
    b"\0" * 64, b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /tokenize HTTP/1.1\r\nContent-Length: 1099511627776\r\n\r\n{",  # oversized by its own word
    b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + b" " * 0x100000 + b"\r\n" * 1 +
    (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 8,  # oversized as it comes
    b"GET / HTTP/1.1\r\nX: " + b"y" * (1 << 17) + b"\r\n\r\n", b"GET /" + b"z" * (1 << 17) + b" HTTP/1.1\r\n\r\n",
    post("/v1/completions", b"[" * 100000), post("/v1/completions", b'{"prompt": "\xff"}'), post("/v1/completions", b""),
]


async def malformed(server, n):
    answer = await send(server, MALFORMED[n % len(MALFORMED)])
    require(answer == b"" or re.match(rb"HTTP/1\.[01] (4\d\d|50[0-5]) ", answer),
            f"{MALFORMED[n % len(MALFORMED)][:60]} is answered with {answer[:100]}")


async def random_request(server, n):
    """A request of which some bytes, or the length, may be wrong."""
    chance = random.Random(n)
    body = bytearray(json.dumps({
        "prompt": chance.choice(["", "abc", ["a", "b"], [104, 105], [[104], [105, 106]], 7, None]),
        "max_tokens": chance.choice([0, 1, 9, 20, -1, "x", 2.5]), "n": chance.choice([1, 1, 2, 0, 200]),
        "logprobs": chance.choice([None, 0, 3, 99]), "echo": chance.choice([True, False, 1]),
        "stream": chance.choice([True, False]), "stop": chance.choice([None, "e", ["a", ""], 3]),
        "temperature": chance.choice([0, 0.7, 1, -1, 1e300]), "seed": n}).encode())
    if chance.random() < 0.5:
        for _ in range(chance.randrange(4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
    path = chance.choice(["/v1/completions"] * 4 + ["/v1/chat/completions", "/tokenize", "/detokenize", "/depth", "/health", "/%00", "/"])
    data = bytearray(post(path, bytes(body), "1.0"))
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.05:
        data = data[:chance.randrange(len(data))]
    answer = await send(server, bytes(data))
    require(answer == b"" or re.match(rb"HTTP/1\.[01] [2345]\d\d ", answer), f"request {n} is answered with {answer[:100]}")


async def slow_reader(server):
    """Reads nothing of a stream without end: it is cut off."""
    before = await metric(server, 'denseformer_cancelled_total{reason="disconnect"}')
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(post("/v1/completions", {**text_request(1, 1 << 20), "logprobs": 20}))
    for _ in range(1200):
        await asyncio.sleep(0.05)
        if await metric(server, 'denseformer_cancelled_total{reason="disconnect"}') > before:
            client.close()
            return
    raise Failure("a client that does not read is not cut off")


async def open_stream(server, n, tokens):
    reader, writer = await connect(server)
    writer.write(post("/v1/completions", text_request(n, tokens)))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
    return reader, writer, head


async def many_streams(server, count, expected, long_tokens, long_expected, result):
    """Opens `count` streams, the first RUNNING of which are long; all of them must end, with the text of a client alone."""
    sizes = [(n % len(long_expected), long_tokens, long_expected[n % len(long_expected)]) if n < RUNNING else
             (n % len(expected), 20, expected[n % len(expected)]) for n in range(count)]
    ended = 0

    async def read(stream, wanted):
        nonlocal ended
        reader, writer, head = stream
        answer = head + await asyncio.wait_for(reader.read(), 600)
        writer.close()
        require(content(answer) == wanted, "a stream among many differs")
        ended += 1

    readers = []

    async def start(numbers):
        """Opens these streams and waits until the server counts all that are open: the engine takes sequences in between steps."""
        async def one(n):
            seed, tokens, wanted = sizes[numbers[n]]
            readers.append(asyncio.create_task(read(await open_stream(server, seed, tokens), wanted)))

        await many(len(numbers), 32, one)
        opened = numbers[-1] + 1
        wanted = {"connections": opened + 1, "sequences_running": RUNNING, "sequences_waiting": opened - RUNNING}
        while (seen := await counts(server, wanted)) != wanted:
            require(ended == 0, f"not all streams are open at once: {seen} instead of {wanted}")
            await asyncio.sleep(0.01)
        return seen

    await start(range(RUNNING))  # the long ones first, so that none of the others runs before them
    value = await start(range(RUNNING, count))
    held = server.memory() - server.loaded
    result["streams"] = {"open": value["connections"] - 1, "generating": value["sequences_running"],
                         "waiting": value["sequences_waiting"], "memory_mib": round(held / 2**20, 1)}
    if not server.sanitized():
        require(held < STREAMS_MEMORY, f"{count} streams take {held} bytes")
    await asyncio.gather(*readers)
    result["streams"]["ended"] = ended


def read_all(client):
    try:
        while client.recv(1 << 16):
            pass
    except OSError:  # the server has ended, or the client is closed
        pass


def signals(server):
    """A signal while the model is loaded, and a second one while a stream is finished, end the program at once."""
    loading = server.run + "-loading"
    shutil.copytree(server.run, loading)
    os.remove(os.path.join(loading, "tokenizer.json"))
    os.mkfifo(os.path.join(loading, "tokenizer.json"))  # whoever opens it waits

    def end(process, when):
        time.sleep(0.3)  # it listens for signals soon after it has said so
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        require(process.returncode == -signal.SIGTERM and when in said, f"{when}: status {process.returncode}: {said}")

    slow, draining = server.start(loading), server.start(server.run)
    try:
        slow.stderr.readline()
        end(slow, "being loaded")
        with socket.create_connection(("127.0.0.1", server.wait(draining))) as client:
            client.sendall(post("/v1/completions", text_request(1, 1 << 20)))
            client.recv(100)
            # It reads on: a client that does not is cut off, and then there is nothing to finish.
            threading.Thread(target=read_all, args=(client,), daemon=True).start()
            draining.send_signal(signal.SIGTERM)
            while "draining" not in draining.stderr.readline():
                pass
            end(draining, "while draining")
    finally:
        for process in (slow, draining):
            process.kill()


async def abuse(server, sizes, result):
    expected = [content(await send(server, post("/v1/completions", text_request(n, 20)))) for n in range(8)]
    long_expected = [content(await send(server, post("/v1/completions", text_request(n, sizes["long_tokens"])))) for n in range(4)]
    phases = [("connects", lambda: many(sizes["connects"], 16, lambda n: leave(server, n))),
              ("malformed", lambda: many(sizes["malformed"], 8, lambda n: malformed(server, n))),
              ("random", lambda: many(sizes["random"], 16, lambda n: random_request(server, n))),
              ("slow_reader", lambda: slow_reader(server))]
    # Once in small, so that buffers and pages that are kept for later have been made before memory is compared.
    await many(32, 16, lambda n: leave(server, n))
    await many(64, 16, lambda n: random_request(server, n))
    await many(len(MALFORMED), 8, lambda n: malformed(server, n))
    await slow_reader(server)
    await many_streams(server, RUNNING + 8, expected, sizes["long_tokens"], long_expected, {})
    await idle(server)
    before = server.memory()
    for name, work in phases:
        begin, stop = time.monotonic(), asyncio.Event()
        company = asyncio.create_task(steady(server, expected, stop))
        await work()
        stop.set()
        texts = await company
        await idle(server)
        result[name] = {"count": sizes.get(name, 1), "seconds": round(time.monotonic() - begin, 1), "texts_beside": texts,
                        "memory_mib": round(server.memory() / 2**20, 1)}
        print(name, result[name], file=sys.stderr, flush=True)
    await many_streams(server, sizes["streams"], expected, sizes["long_tokens"], long_expected, result)
    await idle(server)
    require(result["streams"]["ended"] == sizes["streams"], "not every stream ended")
    after = server.memory()
    result["memory_mib"] = {"before": round(before / 2**20, 1), "after": round(after / 2**20, 1)}
    print("streams", result["streams"], "memory", result["memory_mib"], file=sys.stderr, flush=True)
    if not server.sanitized():
        require(after - before < GROWTH, f"memory grew from {before} to {after} bytes")


def main():
    parser = argparse.ArgumentParser(description="Abuses denseformer serve")
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="1,000 connects, 10,000 random requests, 1,000 streams")
    parser.add_argument("--json", action="store_true", help="print what was seen as JSON")
    options = parser.parse_args()
    sizes = {"connects": 1000, "malformed": 1000, "random": 10000, "streams": 1000, "long_tokens": 4000} if options.long else \
            {"connects": 60, "malformed": 44, "random": 150, "streams": 90, "long_tokens": 1000}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < sizes["streams"] + 100:
        sys.exit(f"error: {hard} open files allowed, expected at least {sizes['streams'] + 100}; raise the limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result = {}
    with tempfile.TemporaryDirectory() as directory:
        server = Server(options.program, directory)
        try:
            asyncio.run(abuse(server, sizes, result))
            signals(server)
            server.end()
        except (Failure, asyncio.TimeoutError, subprocess.TimeoutExpired) as failure:
            sys.exit(f"FAILED: {failure or 'no answer in time'}; so far: {json.dumps(result)}")
        finally:
            if server.process.poll() is None:
                server.process.kill()
    if options.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
