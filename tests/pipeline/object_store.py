"""A server of S3 on this machine, for tests of what object stores do otherwise than file systems: that of moto, in its
own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Where scripts/setup has put moto, which needs other versions of packages than we do.
_PACKAGES: Final = Path(sys.prefix) / "share" / "s3"
_ADDRESS: Final = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
BUCKET: Final = "fleet"


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """Run the server during the block; the environment in which delta-rs and pyarrow use it."""
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", "0"]
    environment = {"PYTHONPATH": str(_PACKAGES), "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    # It notes every request, and would wait if nobody read that.
    reader = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if match := _ADDRESS.search(line):
                break
        else:
            raise RuntimeError("".join(said))
        reader.start()
        address = match[1]
        request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass
        yield {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.kill()
        process.wait()
        if reader.ident:
            reader.join()
        process.stdout.close()
