# -*- coding: utf-8 -*-
"""Publishes this host's telemetry to the queue "telemetry". Runs unchanged on Python 2.7 and 3.6 and newer."""

from __future__ import print_function

import argparse
import platform
import time

from postroom_client import Client, PostroomError
from readings import Cpu, all_readings
from stopping import Stop
from trouble import Trouble

QUEUE = "telemetry"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipc-root", required=True, help="the daemon's mailbox directory")
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="pause between two looks (1)")
    parser.add_argument("--disk", default="/", metavar="PATH", help="file system to look at (/)")
    options = parser.parse_args()
    stop = Stop()
    trouble = Trouble("sensor")
    host = platform.node()
    cpu = Cpu()
    with Client(options.ipc_root, client_id="telemetry-sensor", timeout=5) as client:
        while not stop.wait(options.every):
            taken_at = int(time.time() * 1000)
            for reading in all_readings(cpu, options.disk):
                if stop.requested:
                    break
                reading.update(host=host, takenAt=taken_at)
                publish(client, reading, trouble)
    print("sensor: stopped")


def publish(client, reading, trouble):
    hot = reading["sensor"].startswith("temperature")
    try:
        client.publish(
            QUEUE, reading, attributes={"sensor": reading["sensor"]}, priority=5 if hot else 0, type="reading"
        )
        trouble.over()
    except PostroomError as error:  # the next look brings a newer value: say so and go on
        trouble.note("%s is lost: %s" % (reading["sensor"], error))


if __name__ == "__main__":
    main()
