"""Bodies above the limit: every client must get to read the 413, although it is answered while the body is still on its way."""

import pathlib
import subprocess

# 5 MiB; the limit is 4 MiB.
SIZE = 5 << 20
TIMES = 5

HTTP_CLIENT = """
import http.client, sys
from urllib.parse import urlsplit
url = urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
connection.request("PUT", url.path, b"x" * int(sys.argv[2]), {"Fencing-Token": "1"})
print(connection.getresponse().status)
"""
REQUESTS = """
import requests, sys
print(requests.put(sys.argv[1], data=b"x" * int(sys.argv[2]), headers={"Fencing-Token": "1"}, timeout=30).status_code)
"""
NODE = """
const [url, size] = process.argv.slice(1)
fetch(url, { method: 'PUT', body: Buffer.alloc(+size, 'x'), headers: { 'Fencing-Token': '1' }, signal: AbortSignal.timeout(30000) })
  .then((answer) => console.log(answer.status), (error) => { console.error(`${error.message}: ${error.cause}`); process.exit(1) })
"""


def large_bodies(url, packages):
    """Rows of a table, and what was not as it must be."""
    python = packages / "apps/bin/python"
    target, size = f"{url}/v1/kv/large", str(SIZE)
    file = pathlib.Path(packages) / "five-mebibytes"
    file.write_bytes(b"x" * SIZE)
    curl = ["curl", "-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}", "-T", file, "-H", "Fencing-Token: 1", target]
    clients = [
        ("http.client", [python, "-c", HTTP_CLIENT, target, size]),
        ("requests", [python, "-c", REQUESTS, target, size]),
        ("Node fetch", ["node", "-e", NODE, target, size]),
        ("Go net/http", [packages / "large-body", target, size]),
        ("curl", curl),
        ("curl, without Expect", [*curl, "-H", "Expect:"]),
    ]
    rows, wrong = [], []
    for name, command in clients:
        said = [subprocess.run(command, capture_output=True, text=True, timeout=60) for _ in range(TIMES)]
        right = sum(done.stdout.strip() == "413" for done in said)
        rows.append((name, f"{right} of {TIMES}"))
        if right < TIMES:
            other = next(done for done in said if done.stdout.strip() != "413")
            words = (other.stdout + other.stderr).strip().splitlines()
            wrong.append(f"{name}: only {right} of {TIMES} requests above the limit read 413; one said {words[-1] if words else 'nothing'}")
    return rows, wrong
