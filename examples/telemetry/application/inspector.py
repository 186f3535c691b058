# -*- coding: utf-8 -*-
"""Takes readings from "telemetry", passes those in range on to "telemetry.accepted", and rejects the others.

A rejected reading becomes a dead letter with the reason. Runs unchanged on Python 2.7 and 3.6 and newer.
"""

from __future__ import print_function

import argparse

from postroom_client import Client, PostroomError
from stopping import Stop
from trouble import Trouble

#: Lowest and highest good value by kind of sensor.
LIMITS = {"cpu": (0, 80), "disk": (0, 90), "load": (0, 4), "memory": (0, 90), "temperature": (-30, 85)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipc-root", required=True, help="the daemon's mailbox directory")
    parser.add_argument(
        "--limit", action="append", default=[], type=limit, metavar="SENSOR=LOW:HIGH", help="for instance cpu=0:50"
    )
    options = parser.parse_args()
    limits = dict(LIMITS, **dict(options.limit))
    stop = Stop()
    trouble = Trouble("inspector")
    with Client(options.ipc_root, client_id="telemetry-inspector", timeout=5) as client:
        while not stop.requested:
            try:
                inspect_next(client, limits)
                trouble.over()
            except PostroomError as error:  # what was not settled comes again when its lease is over
                trouble.note(error)
                stop.wait(1)
    print("inspector: stopped")


def inspect_next(client, limits):
    delivery = client.consume_next("telemetry", wait_ms=1000)
    if delivery is None:
        return
    problem = problem_of(delivery.payload, limits)
    if problem:
        client.nack(delivery, reason=problem, requeue=False)
        return
    # Between these two calls lies the only moment that can bring a reading twice: worker.py can bear that.
    client.publish("telemetry.accepted", delivery.payload, type="reading", deduplication_key=delivery.message_key)
    client.ack(delivery)


def problem_of(reading, limits):
    """What is wrong with a reading, in words, or None."""
    if not isinstance(reading, dict) or not isinstance(reading.get("value"), (int, float)):
        return "not a reading: it has no number under value"
    sensor = reading.get("sensor")
    low, high = limits.get(str(sensor).split(".")[0], (None, None))
    if low is None:
        return "no limits known for sensor %s" % sensor
    if not low <= reading["value"] <= high:
        return "%s is %s, outside %g to %g %s" % (sensor, reading["value"], low, high, reading.get("unit", ""))
    return None


def limit(text):
    try:
        sensor, _, bounds = text.partition("=")
        low, high = bounds.split(":")
        return sensor, (float(low), float(high))
    except ValueError:
        raise argparse.ArgumentTypeError("%r is not like cpu=0:50" % text)


if __name__ == "__main__":
    main()
