"""Litestream: the changes of an SQLite database, replicated. A new holder starts from a copy of the replica."""

import os
import sqlite3
import subprocess
import sys

from app import BUCKET, ENDPOINT, REGION, WHO, WORK, serve

PROGRAM = os.path.join(os.path.dirname(sys.executable), "litestream")
DATABASE = os.path.join(WORK, "rows.db")
CONFIG = os.path.join(WORK, "litestream.yml")
with open(CONFIG, "w") as file:
    file.write(
        f"""dbs:
  - path: {DATABASE}
    replica: {{type: s3, bucket: {BUCKET}, path: replica, endpoint: "{ENDPOINT}", region: {REGION}, force-path-style: true}}
"""
    )


def litestream(*arguments):
    done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=80)
    if done.returncode != 0:
        raise OSError((done.stderr.strip() or done.stdout.strip())[-1000:])


def replicate(*options):
    with sqlite3.connect(DATABASE) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE IF NOT EXISTS rows (who TEXT)")
        database.execute("INSERT INTO rows VALUES (?)", [WHO])
    database.close()
    litestream("replicate", "-config", CONFIG, "-once", *options)


def read():
    copy = os.path.join(WORK, "copy.db")
    for path in [copy, copy + "-wal", copy + "-shm"]:
        if os.path.exists(path):
            os.remove(path)
    litestream("restore", "-config", CONFIG, "-o", copy, DATABASE)
    with sqlite3.connect(copy) as database:
        return database.execute("SELECT who FROM rows ORDER BY rowid").fetchall()


if WHO == "b":
    litestream("restore", "-config", CONFIG, DATABASE)
serve(
    subprocess.run([PROGRAM, "version"], capture_output=True, text=True).stdout.strip(),
    {"replicate": replicate, "replicate with a snapshot": lambda: replicate("-force-snapshot")},
    read,
)
