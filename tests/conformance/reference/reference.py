#!/usr/bin/env python3
"""A fenced resource over exec that is right, or wrong in one way: --bug NAME.

Reads one JSON request per line, answers one per line. Its state is a log: one line for each change, written and synced
under a lock of the file before the answer, so several processes may share it and a kill loses nothing that was
answered. Standard library only.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

BUGS = {
    "accept-all", "reject-all", "equality", "off-by-one", "refused-but-written", "textual-order", "floating-point",
    "signed-cast", "ratchets-down", "gt-for-ge", "ge-for-gt", "holder-ignored", "absent-adopts", "lenient-tokens", "unfenced-claim",
    "unfenced-cas", "unfenced-delete", "unfenced-batch", "global-fence", "delete-drops-fence", "claim-forgets",
    "stale-reads", "partial-batch", "refused-batch-raises", "check-then-act", "process-cache", "memory-only",
    "answered-first", "memory-first", "two-commits", "eviction", "removed-first", "clock-expiry", "clock-order",
    # Nothing is wrong here then, but in the commands that take its backups.
    "backup-without-fences",
}

TOKEN_MAX = 2**64 - 1

# So many fences are kept by the bug eviction.
KEPT = 1500

# After so many seconds the bug clock-expiry lets a fence go.
EXPIRES = 43200


class Refused(Exception):
    """Ends an operation with this answer."""

    def __init__(self, **answer):
        self.answer = answer


class Record:
    """What is kept for one resource."""

    def __init__(self, high=None, used=False, holder=None, value=None, at=0):
        self.high, self.used, self.holder, self.value = high, used, holder, value
        # When it was changed, by the clock; only bugs look at it.
        self.at = at

    def copy(self):
        return Record(**vars(self))

    def with_value(self, value):
        return Record(self.high, self.used, self.holder, value, self.at)

    def raise_to(self, token, holder):
        if self.high is None or token > self.high:
            self.high, self.used, self.holder = token, False, holder
        elif self.holder is None:
            self.holder = holder


class Log:
    """The store: a file of lines, each a change of one or more resources."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "log")
        self.file = self.open(self.path)
        self.lock = threading.Lock()
        self.offset = 0
        self.records = {}

    def open(self, path, flags=0):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags, 0o600)

    @contextlib.contextmanager
    def locked(self):
        """Nobody else reads or writes meanwhile, in this process or another."""
        with self.lock:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            try:
                self.catch_up()
                yield
            finally:
                fcntl.flock(self.file, fcntl.LOCK_UN)

    def catch_up(self):
        """Reads what others wrote. A line without an end is that of a process that was killed: it never happened."""
        size = os.fstat(self.file).st_size
        if size == self.offset:
            return
        text = b""
        while len(text) < size - self.offset:
            text += os.pread(self.file, size - self.offset - len(text), self.offset + len(text))
        whole = text.rfind(b"\n") + 1
        for line in text[:whole].splitlines():
            for name, fields in json.loads(line).items():
                self.records[name] = Record(**fields)
        self.offset += whole
        if whole < len(text):
            os.ftruncate(self.file, self.offset)

    def get(self, name):
        return self.records.get(name, Record()).copy()

    def put(self, changes):
        """Stores changes in one step, and returns when they are on the disk."""
        line = json.dumps({name: vars(record) for name, record in changes.items()}).encode() + b"\n"
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self.file, rest):]
        os.fsync(self.file)
        self.offset += len(line)
        for name, record in changes.items():
            self.records[name] = record.copy()

    def replace(self, changes):
        """The same with a new file; the old one is removed just before the new one takes its name."""
        old, records = self.file, {**self.records, **changes}
        self.file, self.offset = self.open(self.path + ".new", os.O_TRUNC), 0
        self.put(records)
        os.unlink(self.path)
        os.rename(self.path + ".new", self.path)
        os.close(old)


class Resource:
    """The operations, and the bug in them."""

    def __init__(self, options):
        self.bug = options.bug
        self.policy, self.equal, self.reads, self.high = options.policy, options.equal, options.reads, options.high
        # How many of its reads are behind: with the bug, or where that is declared.
        self.behind = 0.9 if self.bug == "stale-reads" else 0.5 if self.reads == "stale-ok" else 0
        self.log = None
        self.memory = {}
        self.pending = {}
        self.recent = {}

    def init(self, request):
        self.log = Log(request["dir"])
        self.clock = os.path.join(request["dir"], "clock")
        caps = ["write", "read", "checked_read", "claim", "cas", "delete", "batch"]
        promises = {"policy": self.policy, "equal": self.equal, "reads": self.reads, "high": self.high}
        return {"result": "ok", "caps": caps, **promises, "kill": "everything"}

    def now(self):
        """The time, as far off as the hook `clock` says."""
        if not os.path.exists(self.clock):
            return time.time()
        with open(self.clock) as shift:
            return time.time() + int(shift.read())

    def token(self, request):
        token = request.get("token")
        if token is None and self.bug == "absent-adopts":
            return self.known(request["res"]).high or 0
        if isinstance(token, str) and self.bug == "lenient-tokens":
            try:
                return int(token)
            except ValueError:
                pass
        if not isinstance(token, str) or not token.isascii() or not token.isdigit() or len(token) > 20:
            raise Refused(result="error", definite=True, code="token-invalid")
        number = int(token)
        if number > TOKEN_MAX or str(number) != token:
            raise Refused(result="error", definite=True, code="token-invalid")
        return number

    def known(self, name):
        """The record that decisions are made on."""
        stored = self.log.get(name)
        if self.bug == "memory-only":
            return self.memory.get(name, Record()).with_value(stored.value)
        if self.bug == "answered-first":
            return self.pending.get(name, stored).copy()
        if self.bug == "process-cache":
            return self.memory.setdefault(name, stored.copy()).with_value(stored.value)
        if self.bug == "global-fence":
            return self.log.get("").with_value(stored.value)
        if self.bug == "clock-expiry" and stored.at + EXPIRES < self.now():
            return Record(value=stored.value)
        return stored

    def store(self, changes):
        if self.bug == "answered-first":
            if self.pending:
                self.log.put(self.pending)
            self.pending = dict(changes)
            return
        if self.bug in ("memory-only", "process-cache", "memory-first"):
            self.memory.update({name: record.copy() for name, record in changes.items()})
        if self.bug == "memory-first":
            time.sleep(random.random() / 50)
        if self.bug == "memory-only":
            changes = {name: Record(value=record.value) for name, record in changes.items()}
        if self.bug == "global-fence":
            highest = max(changes.values(), key=lambda record: record.high)
            changes = {**changes, "": highest.with_value(None)}
        if self.bug == "eviction":
            changes = {**changes, **self.evicted(changes)}
        if self.bug in ("clock-expiry", "clock-order"):
            changes = {name: self.stamped(name, record) for name, record in changes.items()}
        if self.bug == "two-commits":
            self.log.put({name: self.log.get(name).with_value(record.value) for name, record in changes.items()})
            time.sleep(random.random() / 500)
        if self.bug == "removed-first":
            return self.log.replace(changes)
        self.log.put(changes)

    def stamped(self, name, record):
        """With its time; with the bug clock-order the later time wins."""
        stored, now = self.log.get(name), self.now()
        if self.bug == "clock-order" and now < stored.at:
            return Record(record.high, record.used, record.holder, stored.value, stored.at)
        return Record(record.high, record.used, record.holder, record.value, now)

    def evicted(self, changes):
        """The resources that were not used for longest, without their fences."""
        for name in changes:
            self.recent.pop(name, None)
            self.recent[name] = True
        oldest = list(self.recent)[: max(0, len(self.recent) - KEPT)]
        for name in oldest:
            del self.recent[name]
        return {name: Record(value=self.log.get(name).value) for name in oldest}

    def order(self, token, high):
        if self.bug == "textual-order":
            token, high = str(token), str(high)
        if self.bug == "floating-point":
            token, high = float(token), float(high)
        if self.bug == "signed-cast":
            token, high = signed(token), signed(high)
        if self.bug == "off-by-one":
            token += 1
        return (token > high) - (token < high)

    def same(self, record, holder):
        return self.equal == "any" or self.bug == "holder-ignored" or record.holder in (None, holder)

    def admits(self, record, verb, token, holder):
        if self.bug == "unfenced-" + verb or self.bug == "accept-all":
            return True
        if self.bug == "reject-all":
            return False
        if record.high is None:
            return True
        order = self.order(token, record.high)
        if order > 0:
            return self.bug != "equality"
        once = (self.policy == "gt" or self.bug == "gt-for-ge") and self.bug != "ge-for-gt"
        return order == 0 and self.same(record, holder) and (verb == "claim" or not (once and record.used))

    def apply(self, record, verb, token, holder, value):
        forced = ("accept-all", "ratchets-down", "textual-order", "floating-point", "signed-cast")
        if self.bug in forced and token != record.high:
            record.high, record.used, record.holder = token, False, holder
        record.raise_to(token, holder)
        if verb != "claim":
            record.used, record.value = True, value

    def change(self, verb, request):
        name, holder, value = request["res"], request["holder"], request.get("value")
        token = self.token(request)
        if self.bug == "memory-first":
            high = self.memory.get(name, Record()).high
            if high is not None and token < high:
                return stale(high)
        if self.bug == "check-then-act":
            with self.log.locked():
                early = self.log.get(name)
            time.sleep(random.random() / 500)
        with self.log.locked():
            before = early if self.bug == "check-then-act" else self.known(name)
            if not self.admits(before, verb, token, holder):
                return self.refuse(verb, name, before, token, holder, value)
            if verb == "cas" and before.value != request["expect"]:
                return {"result": "mismatch", "current": before.value}
            after = before.copy()
            self.apply(after, verb, token, holder, value)
            if verb == "delete" and self.bug == "delete-drops-fence":
                after = Record()
            if verb != "claim" or (self.bug != "claim-forgets" and vars(after) != vars(before)):
                self.store({name: after})
        if verb == "claim":
            return found(after)
        return {"result": "ok", **fence(after.high)}

    def refuse(self, verb, name, before, token, holder, value):
        if self.bug == "refused-but-written" and verb != "claim":
            self.log.put({name: before.with_value(value)})
        if self.bug == "ratchets-down":
            self.log.put({name: Record(token, False, holder, before.value)})
        return stale(before.high)

    def read(self, request):
        name = request["res"]
        if self.behind and name in self.memory and random.random() < self.behind:
            return found(self.memory[name])
        with self.log.locked():
            record = self.known(name)
        if self.behind:
            self.memory[name] = record
        return found(record)

    def checked_read(self, request):
        token = self.token(request)
        with self.log.locked():
            record = self.known(request["res"])
        if record.high is not None and self.order(token, record.high) < 0:
            return stale(record.high)
        return found(record)

    def batch(self, request):
        writes = [(write, self.token(write)) for write in request["writes"]]
        with self.log.locked():
            before = {write["res"]: self.known(write["res"]) for write, _ in writes}
            after = {name: record.copy() for name, record in before.items()}
            for write, token in writes:
                record = after[write["res"]]
                if not self.admits(record, "batch", token, write["holder"]):
                    if self.bug == "partial-batch":
                        self.store(after)
                    if self.bug == "refused-batch-raises":
                        for other, raised in writes:
                            before[other["res"]].raise_to(raised, other["holder"])
                        self.store(before)
                    return {"result": "stale"}
                self.apply(record, "batch", token, write["holder"], write["value"])
            self.store(after)
        return {"result": "ok"}

    def told(self, answer):
        """Where the reported fence need not be exact, every second one is lower than it is."""
        if self.high == "at_least" and "high" in answer and random.random() < 0.5:
            return {**answer, "high": str(int(answer["high"]) // 2)}
        return answer

    def answer(self, request):
        op = request["op"]
        try:
            if op == "init":
                return self.init(request)
            if op in ("write", "claim", "cas", "delete"):
                return self.told(self.change(op, request))
            if op in ("read", "checked_read", "batch"):
                return self.told(getattr(self, op)(request))
            return {"result": "unsupported"}
        except Refused as refused:
            return refused.answer


def signed(number):
    return number - 2**64 if number >= 2**63 else number


def fence(high):
    return {} if high is None else {"high": str(high)}


def stale(high):
    return {"result": "stale", **fence(high)}


def found(record):
    return {"result": "ok", "value": record.value, **fence(record.high)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bug", choices=sorted(BUGS))
    parser.add_argument("--policy", choices=["ge", "gt"], default="ge")
    parser.add_argument("--equal", choices=["any", "holder"], default="any")
    parser.add_argument("--reads", choices=["linearizable", "stale-ok"], default="linearizable")
    parser.add_argument("--high", choices=["exact", "at_least"], default="exact")
    parser.add_argument("--list", action="store_true", help="print the bugs and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(sorted(BUGS)))
        return
    resource = Resource(options)
    printing = threading.Lock()

    def serve(request):
        try:
            line = json.dumps({"id": request["id"], **resource.answer(request)})
        except Exception:
            # A defect here must not look like a slow resource.
            traceback.print_exc()
            os._exit(1)
        with printing:
            print(line, flush=True)

    with ThreadPoolExecutor(32) as threads:
        for line in sys.stdin:
            request = json.loads(line)
            if request["op"] == "init":
                serve(request)
            else:
                threads.submit(serve, request)


if __name__ == "__main__":
    main()
