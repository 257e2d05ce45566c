"""A gateway of the trial's own, on loopback, with its data in a temporary directory."""

import hashlib
import json
import pathlib
import subprocess
import threading

# One lock for each bucket.
CONFIG = '[[guard]]\nkeys = "*/**"\nresource = "*"\n'


class Gateway:
    """It ends with the `with` block."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, pathlib.Path(directory)
        self.objects = self.directory / "objects"
        self.log = self.directory / "log"

    def __enter__(self):
        self.objects.mkdir()
        config = self.directory / "fencepost.toml"
        config.write_text(CONFIG)
        command = [self.binary, "serve", "--listen", "127.0.0.1:0", "--data", self.directory / "data", "--config", config]
        command += ["--s3-listen", "127.0.0.1:0", "--objects", f"dir:{self.objects}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        self.url = None
        for line in self.process.stdout:
            if " listening on " in line:
                self.url = line.split(" listening on ")[1].split()[0]
            if line.startswith("S3 on "):
                break
        timer.cancel()
        if self.url is None:
            raise SystemExit(f"the gateway did not start:\n{self.log.read_text()}")
        # It goes on printing for a moment; nothing waits for that.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def bucket(self, name):
        (self.objects / name).mkdir()

    def credentials(self, resource, token):
        """Claims the resource with this token, and returns what its holder's programs find in their environment."""
        command = [self.binary, "s3", "credentials", "--url", self.url, "--lock", f"token:{token}", "--resource", resource, "--format", "json"]
        issued = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
        return {
            "AWS_ACCESS_KEY_ID": issued["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": issued["secret_access_key"],
            "AWS_ENDPOINT_URL": issued["endpoint"],
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def files(self, bucket):
        """Every directory of a bucket, and every file with a digest of its bytes: what other processes see."""
        root = self.objects / bucket
        found = {}
        for path in sorted(root.rglob("*")):
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        return found
