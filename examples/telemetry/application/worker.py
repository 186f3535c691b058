# -*- coding: utf-8 -*-
"""Consumes the accepted readings and keeps each sensor's average. Runs unchanged on Python 2.7 and 3.6 and newer."""

from __future__ import division, print_function

import argparse

from postroom_client import Client, PostroomError
from stopping import Stop
from trouble import Trouble


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipc-root", required=True, help="the daemon's mailbox directory")
    options = parser.parse_args()
    stop = Stop()
    trouble = Trouble("worker")
    totals = {}
    with Client(options.ipc_root, client_id="telemetry-worker", timeout=5) as client:
        while not stop.requested:
            try:
                delivery = client.consume_next("telemetry.accepted", wait_ms=1000)
                if delivery is not None:
                    add(totals, delivery.payload)
                    client.ack(delivery)
                trouble.over()
            except PostroomError as error:  # what was not settled comes again when its lease is over
                trouble.note(error)
                stop.wait(1)
    for sensor, (count, total) in sorted(totals.items()):
        print("worker: %s: %d readings, average %.2f" % (sensor, count, total / count))
    print("worker: stopped")


def add(totals, reading):
    count, total = totals.get(reading["sensor"], (0, 0.0))
    totals[reading["sensor"]] = (count + 1, total + reading["value"])


if __name__ == "__main__":
    main()
