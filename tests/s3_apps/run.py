"""Runs real S3 applications against a gateway, each as a holder and as a zombie, and prints what was seen. Fails if an expectation is not met.

    run.py FENCEPOST PACKAGES [NAME…]     PACKAGES is the directory that scripts/s3-apps fills; names choose some of the applications
    run.py FENCEPOST PACKAGES record      runs all of them, and writes the tables into docs/s3-applications.md
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time

from gateway import Gateway
from large_bodies import large_bodies

HERE = pathlib.Path(__file__).parent
# name, environment (a directory of packages, or Node), program
APPLICATIONS = [
    ("pyarrow", "apps", "with_pyarrow.py"),
    ("deltalake", "apps", "with_deltalake.py"),
    ("polars", "apps", "with_polars.py"),
    ("duckdb", "apps", "with_duckdb.py"),
    ("pyiceberg", "apps", "with_pyiceberg.py"),
    ("restic", "apps", "with_restic.py"),
    ("litestream", "apps", "with_litestream.py"),
    ("javascript", "node", "with_javascript.mjs"),
    ("minio-py", "apps", "with_minio.py"),
    ("boto3-1.26", "boto3-1.26", "with_boto3.py"),
    ("boto3-1.33", "boto3-1.33", "with_boto3.py"),
]
OPERATION_SECONDS = 90
ALL_SECONDS = 1200


class Application:
    """One process of an application. It is killed at the end of the `with` block."""

    def __init__(self, packages, environment, program, variables, log):
        if environment == "node":
            command = ["node", HERE / "apps" / program]
        else:
            command = [packages / environment / "bin/python", HERE / "apps" / program]
        # Nothing of the caller's own S3 settings reaches the applications.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FENCEPOST_", "RESTIC_"))}
        settings = {"PYTHONPATH": str(HERE), "NODE_PACKAGES": str(packages / "node"), "AWS_EC2_METADATA_DISABLED": "true", "HOME": variables["WORK"]}
        self.log = log
        self.process = subprocess.Popen(
            command, env={**inherited, **settings, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("a"), text=True
        )
        self.answers = queue.Queue()
        threading.Thread(target=self.follow, daemon=True).start()
        self.hello = self.answer()

    def follow(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put({"value": None, "error": None, "ended": True})

    def answer(self):
        try:
            answer = self.answers.get(timeout=OPERATION_SECONDS)
        except queue.Empty:
            self.process.kill()
            raise Unexpected(f"no answer after {OPERATION_SECONDS} s") from None
        if "ended" in answer:
            raise Unexpected(f"the program ended: {' '.join(self.log.read_text().split())[-400:]}")
        return answer

    def call(self, operation):
        self.process.stdin.write(operation + "\n")
        self.process.stdin.flush()
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Unexpected(Exception):
    """An application does something that is no answer."""


def short(error):
    words = " ".join(error.split())
    return words if len(words) < 300 else words[:150] + " … " + words[-150:]


def trial(gateway, packages, name, environment, program):
    """One application: the row of the table, and what was not as it must be."""
    wrong = []
    bucket = f"trial-{name.replace('.', '-')}"
    gateway.bucket(bucket)
    directory = gateway.directory / bucket

    def start(who, token):
        work = directory / who
        work.mkdir(parents=True)
        variables = {"BUCKET": bucket, "WHO": who, "WORK": str(work), "SHARED": str(directory), **gateway.credentials(bucket, token)}
        return Application(packages, environment, program, variables, directory / f"{who}.log")

    def works(application, who):
        count = 0
        for operation in application.hello["operations"]:
            error = application.call(operation)["error"]
            if error is None:
                count += 1
            else:
                wrong.append(f"{name}: {operation} of the holder {who} failed: {short(error)}")
        return count

    reasons = refused = 0
    with start("a", 1) as old:
        operations = old.hello["operations"]
        worked = works(old, "a")
        with start("b", 2) as new:
            worked = min(worked, works(new, "b"))
            for step in ["prepare", "read"]:
                seen = new.call(step)
                if seen["error"] is not None:
                    wrong.append(f"{name}: {step} of the holder b failed: {short(seen['error'])}")
            files = gateway.files(bucket)
            for operation in operations:
                error = old.call(operation)["error"]
                if error is None:
                    wrong.append(f"{name}: {operation} of the zombie was reported as done")
                else:
                    refused += 1
                    reasons += "StaleFencingToken" in error or "stale" in error
                after = gateway.files(bucket)
                if after != files:
                    changed = sorted(path for path in files.keys() | after.keys() if files.get(path) != after.get(path))
                    wrong.append(f"{name}: {operation} of the zombie changed {', '.join(changed[:3])}")
                    files = after
            again = new.call("read")
            if again != seen:
                wrong.append(f"{name}: the new holder reads {again}, and read {seen} before the zombie wrote")
    total = len(operations)
    data = "the new holder's" if not any("zombie changed" in line or "new holder reads" in line for line in wrong) else "CHANGED"
    return (f"{name} {old.hello['version']}", f"{worked} of {total}", f"{refused} of {total}", f"{reasons} of {total}", data), wrong


def table(heads, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def record(tables):
    """Puts tables in the place of those in the document that begin with the same line."""
    page = HERE.parent.parent / "docs/s3-applications.md"
    parts = page.read_text().split("\n\n")
    for new in tables:
        (old,) = [at for at, part in enumerate(parts) if part.splitlines()[:1] == new.splitlines()[:1]]
        parts[old] = new
    page.write_text("\n\n".join(parts))


def main():
    fencepost, packages, chosen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    recording = chosen == ["record"]
    if recording:
        chosen = []
    rows, wrong, start = [], [], time.monotonic()
    with tempfile.TemporaryDirectory() as directory, Gateway(fencepost, directory) as gateway:
        for name, environment, program in APPLICATIONS:
            if chosen and name not in chosen:
                continue
            if time.monotonic() - start > ALL_SECONDS:
                wrong.append(f"{name}: not tried, the {ALL_SECONDS} s for all are over")
                continue
            began = time.monotonic()
            try:
                row, found = trial(gateway, packages, name, environment, program)
            except Unexpected as error:
                row, found = (name, "-", "-", "-", "-"), [f"{name}: {error}"]
            rows.append(row)
            wrong += found
            print(f"{name}: {'as it must be' if not found else f'{len(found)} not as they must be'}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        if not chosen or "large-bodies" in chosen:
            bodies, found = large_bodies(gateway.url, packages)
            wrong += found
        else:
            bodies = []
    tables = []
    if rows:
        tables.append(table(["application", "works as holder", "refused as zombie", "says that the token is stale", "data afterwards"], rows))
    if bodies:
        tables.append(table(["client", "413 for a body above the limit"], bodies))
    print("\n" + "\n\n".join(tables))
    if recording:
        record(tables)
    for line in wrong:
        print(f"not as it must be: {line}", file=sys.stderr)
    sys.exit(bool(wrong))


main()
