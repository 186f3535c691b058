# -*- coding: utf-8 -*-
"""One client of the chaos run: publishes its share, consumes whatever it gets, notes down what it was told.

    chaos_client.py IPC NUMBER SHARE NOTES STOP SEED TRANSPORT

TRANSPORT is that of the client library (auto, lane, mailbox); or both: each try goes over the lane or the mailbox, so
that a request is repeated over the other one.
Runs on Python 2.7 and 3.6 to the newest. Every line of NOTES is a JSON list, written once the fact is known:
["attempt", uid, request id], ["published", uid, key], ["delivered", uid, key, lease, attempt, consumer],
["settled", command, key, lease], ["refused", command, key, lease, code]. It ends when the file STOP is there.
"""

from __future__ import print_function

import io
import json
import os
import random
import sys

from postroom_client import Client, DaemonNotRunning, NoAnswer, ServerError

QUEUES = ("chaos", "chaos.a", "a.chaos")
#: How long one try waits for its answer before the same bytes are sent again (s).
TRY_S = (0.05, 0.5, 5.0)


class Chaos(object):
    def __init__(self, ipc, number, share, notes, stop, seed, transport):
        self.number = number
        self.share = share
        self.stop = stop
        self.random = random.Random(seed)
        self.notes = io.open(notes, "a", encoding="utf-8")
        self.clients = [
            Client(ipc, client_id="chaos-%d" % number, timeout=600, transport=name)
            for name in (("lane", "mailbox") if transport == "both" else (transport,))
        ]

    def note(self, *facts):
        self.notes.write(u"%s\n" % json.dumps(facts))
        self.notes.flush()

    def ask(self, command, payload, uid=None):
        """Send until there is an answer, the same bytes each time; its data."""
        request = self.clients[0].prepare(command, payload, timeout=600)
        if uid is not None:
            self.note("attempt", uid, request.request_id)
        wait_s = payload.get("waitMs", 0) / 1000.0
        while True:
            try:
                client = self.random.choice(self.clients)
                return client.send(request, timeout=wait_s + self.random.choice(TRY_S))
            except NoAnswer as error:
                if isinstance(error, DaemonNotRunning) and os.path.exists(self.stop):
                    raise

    def run(self):
        self.note("started", sys.version.split()[0])
        published = 0
        while not os.path.exists(self.stop):
            if published < self.share:
                for _ in range(self.random.randint(1, 4)):
                    if published < self.share:
                        self.publish(published)
                        published += 1
            self.consume(wait_ms=200 if published == self.share else 0)
        self.note("ended")

    def publish(self, count):
        uid = "%d-%d" % (self.number, count)
        payload = {
            "queue": self.random.choice(QUEUES),
            "message": {"uid": uid, "text": u"\u00fc" * (count % 40)},
            "priority": count % 3 - 1 if count % 7 == 0 else None,
            "delayMs": 20 if count % 31 == 0 else 0,
        }
        self.note("published", uid, self.ask("publish", payload, uid)["messageKey"])

    def consume(self, wait_ms):
        payload = {"queue": self.random.choice(QUEUES), "payloadAs": "value", "visibilityTimeoutSec": 3.0}
        if self.random.random() < 0.03:
            payload["visibilityTimeoutSec"] = 0.003  # its holder will mostly be too late
        if wait_ms:
            payload.update(waitMs=wait_ms, waitLock=True)
        try:
            data = self.ask("consume_next", payload)
        except ServerError as error:
            if error.code != "ERR_LEASE_EXPIRED":  # the answer came after its delivery was over
                raise
            return
        message, lease = data["message"], data.get("lease")
        if not message:
            return
        key, lease_id = message["messageKey"], lease["leaseId"]
        self.note("delivered", message["payload"]["uid"], key, lease_id, message["attempt"], lease["consumerId"])
        dice = self.random.random()
        if dice < 0.01:
            return  # forgotten: its lease will end
        if dice < 0.04:
            self.settle("nack", key, lease_id, requeue=True)
        elif dice < 0.06:
            self.settle("release", key, lease_id)
        elif dice < 0.07:
            self.settle("nack", key, lease_id)
        else:
            if dice < 0.10:
                self.settle("extend_lease", key, lease_id, visibilityTimeoutSec=4)
            self.settle("ack", key, lease_id)

    def settle(self, command, key, lease_id, **payload):
        payload.update(messageKey=key, leaseId=lease_id)
        try:
            self.ask(command, payload)
        except ServerError as error:
            self.note("refused", command, key, lease_id, error.code)
        else:
            self.note("settled", command, key, lease_id)


if __name__ == "__main__":
    ipc, number, share, notes, stop, seed, transport = sys.argv[1:]
    Chaos(ipc, int(number), int(share), notes, stop, int(seed), transport).run()
