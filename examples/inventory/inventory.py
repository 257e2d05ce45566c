#!/usr/bin/env python3
"""Sell a stock with 32 workers, some of which pause for longer than their lease lasts.

Each worker takes the lock `stock/sku-7`, reads how many are left, thinks for a while, and then writes one less together
with a record of the sale, in one transaction. That is safe as long as nobody else works at the same time; and a worker
that paused for too long does not know that somebody else does.

The same run happens twice. With the fence enforced, exactly the stock is sold. With the guard in observe mode everything
passes, as it would without Fencepost: more is sold than there was.

    python3 examples/inventory/inventory.py --fencepost ~/.local/bin/fencepost

Plain HTTP and the standard library only; any language can do the same.
"""

import argparse
import http.client
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid

RESOURCE = "stock/sku-7"

# One fence for the count and for every record of a sale below it.
GUARD = """
[[guard]]
keys     = "stock/*/**"
resource = "stock/*"
mode     = "{mode}"
"""


class Gateway:
    """A `fencepost serve` of our own, with its data in a temporary directory."""

    def __init__(self, binary, directory, mode):
        directory = pathlib.Path(directory)
        config = directory / "fencepost.toml"
        config.write_text(GUARD.format(mode=mode))
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", directory / "data", "--config", config]
        self.process = subprocess.Popen(command + ["--log", "warn"], stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        if "listening on http://" not in said:
            sys.exit(f"the gateway did not start: {said}")
        self.address = said.split("listening on http://")[1].split()[0]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)


class Client:
    """One connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=60)

    def call(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body and json.dumps(body), headers or {})
        answer = self.connection.getresponse()
        raw = answer.read()
        is_json = "json" in (answer.getheader("content-type") or "")
        return answer.status, json.loads(raw) if is_json else raw.decode(), answer.headers


class Shop:
    """What all workers of one run share."""

    def __init__(self, address, stock, ttl_ms):
        self.address, self.ttl_ms, self.most = address, ttl_ms, 10 * stock
        self.lock = threading.Lock()
        self.sold = self.refused = self.observed = self.pauses = 0
        client = Client(address)
        seed = {"tokens": {RESOURCE: "1"}, "then": [{"put": RESOURCE, "text": str(stock)}]}
        status, answer, _ = client.call("POST", "/v1/txn", seed)
        assert status == 200, answer

    def count(self, **more):
        with self.lock:
            for name, number in more.items():
                setattr(self, name, getattr(self, name) + number)

    def work(self, number):
        client, turns = Client(self.address), random.Random(number)
        while True:
            # A new holder for every acquisition: two of them never look alike.
            holder = f"worker-{number}#{uuid.uuid4().hex[:8]}"
            wanted = {"holder": holder, "ttl_ms": self.ttl_ms, "wait_ms": 60_000}
            status, lease, _ = client.call("POST", f"/v1/locks/{RESOURCE}", wanted)
            if status != 201:
                raise SystemExit(f"no lock: {lease}")
            _, left, _ = client.call("GET", f"/v1/kv/{RESOURCE}")
            if int(left) <= 0 or self.sold >= self.most:
                client.call("DELETE", f"/v1/locks/{RESOURCE}", headers={"Fencing-Lease": lease["lease"]})
                return
            if turns.random() < 0.25:
                # A long garbage collection, a swapped-out machine, a slow network.
                self.count(pauses=1)
                time.sleep(2.5 * self.ttl_ms / 1000)
            self.sell(client, lease, int(left))
            # 410 if the lease was lost: somebody else has the lock, and nothing was changed.
            client.call("DELETE", f"/v1/locks/{RESOURCE}", headers={"Fencing-Lease": lease["lease"]})

    def sell(self, client, lease, left):
        sale = f"{RESOURCE}/sales/{uuid.uuid4()}"
        credentials = {name: lease[name] for name in ("token", "holder", "issuer")}
        transaction = {
            "tokens": {RESOURCE: credentials},
            "then": [{"put": RESOURCE, "text": str(left - 1)}, {"put": sale, "text": lease["holder"]}],
        }
        status, answer, headers = client.call("POST", "/v1/txn", transaction, {"Idempotency-Key": str(uuid.uuid4())})
        if status == 200:
            self.count(sold=1, observed=1 if headers["fencing-observed"] else 0)
        elif status == 409:
            # Taken over while it paused. Stop, do not retry: the sale did not happen.
            self.count(refused=1)
        else:
            raise SystemExit(f"unexpected: {status} {answer}")


def run(binary, mode, workers, stock, ttl_ms):
    with tempfile.TemporaryDirectory() as directory:
        gateway = Gateway(binary, directory, mode)
        try:
            started, shop = time.monotonic(), Shop(gateway.address, stock, ttl_ms)
            threads = [threading.Thread(target=shop.work, args=(number,)) for number in range(workers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            records, after = 0, ""
            while after is not None:
                _, page, _ = Client(gateway.address).call("GET", f"/v1/kv?prefix={RESOURCE}/sales/&limit=1000&after={after}")
                records, after = records + len(page["keys"]), page.get("next")
            assert records == shop.sold, f"{records} records of {shop.sold} sales"
            took = time.monotonic() - started
            print(f"{mode:8} stock {stock}, sold {records}: {shop.pauses} pauses outlived the lease, "
                  f"{shop.refused} late writes refused, {shop.observed} let through ({took:.1f} s)", flush=True)
            return records
        finally:
            gateway.stop()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--fencepost", default="fencepost", help="the binary [default: the one in PATH]")
    arguments.add_argument("--workers", type=int, default=32)
    arguments.add_argument("--stock", type=int, default=60)
    arguments.add_argument("--ttl-ms", type=int, default=150, help="how long a lease lasts")
    given = arguments.parse_args()
    sold = run(given.fencepost, "enforce", given.workers, given.stock, given.ttl_ms)
    oversold = run(given.fencepost, "observe", given.workers, given.stock, given.ttl_ms) - given.stock
    if sold != given.stock:
        sys.exit(f"WRONG: {sold} of {given.stock} were sold with the fence enforced")
    print(f"With the fence exactly the stock was sold. Without it, {oversold} more than there was.")


if __name__ == "__main__":
    main()
