"""restic: backups. Each operation is a run of the program, as from cron."""

import json
import os
import subprocess

from app import BUCKET, ENDPOINT, WHO, WORK, serve

REPOSITORY = f"s3:{ENDPOINT}/{BUCKET}/repository"
os.environ["RESTIC_PASSWORD"] = "of a trial"
os.environ["RESTIC_CACHE_DIR"] = os.path.join(WORK, "cache")


def restic(*arguments):
    command = ["restic", "--repo", REPOSITORY, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    for line in process.stdout:
        said += line
        # It reports a refusal at once, and then tries again for three quarters of a minute.
        if "returned error, retrying" in line:
            process.kill()
    if process.wait() != 0:
        raise OSError(said.strip()[-1000:])
    return said


def backup():
    os.makedirs(f"{WORK}/files", exist_ok=True)
    with open(f"{WORK}/files/{WHO}", "w") as file:
        file.write(WHO)
    with open(f"{WORK}/files/noise", "wb") as file:
        file.write(os.urandom(1 << 20))
    restic("backup", "--host", WHO, f"{WORK}/files")


def forget():
    snapshots = json.loads(restic("snapshots", "--no-lock", "--json"))
    restic("forget", "--prune", snapshots[0]["id"])


def read():
    return sorted(snapshot["hostname"] for snapshot in json.loads(restic("snapshots", "--no-lock", "--json")))


def prepare():
    backup()
    backup()


if WHO == "a":
    restic("init")
serve(
    subprocess.run(["restic", "version"], capture_output=True, text=True).stdout.split()[1],
    {"backup": backup, "backup again": backup, "forget and prune": lambda: forget(), "tag": lambda: restic("tag", "--add", WHO) and None},
    read,
    prepare,
)
