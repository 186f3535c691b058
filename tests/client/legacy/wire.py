# -*- coding: utf-8 -*-
"""The client against a running daemon, whose mailbox POSTROOM_IPC_ROOT names: ``python wire.py``."""

import json
import os
import subprocess
import sys
import threading
import unittest
import uuid

from postroom_client import (
    Binary,
    Client,
    InvalidArgument,
    InvalidRequest,
    LeaseExpired,
    LeaseMismatch,
    MessageNotFound,
    Paused,
    QueueNotFound,
    RequestTimeout,
    ServerError,
)
from support import PATIENCE_S, wait_until

IPC_ROOT = os.environ["POSTROOM_IPC_ROOT"]


class WireTest(unittest.TestCase):
    def setUp(self):
        self.queue = "wire-" + uuid.uuid4().hex
        self.client = Client(IPC_ROOT, timeout=PATIENCE_S)
        self.addCleanup(self.client.close)

    def take(self, **options):
        delivery = self.client.consume_next(self.queue, **options)
        self.assertIsNotNone(delivery)
        return delivery

    def counts(self):
        counts = self.client.status(self.queue)["metrics"]
        return tuple(counts[name] for name in ("ready", "inflight", "delayed", "dlq"))


class AMessage(WireTest):
    def test_arrives_as_it_was_published(self):
        for body in (
            u"text \u20ac \U0001f600 \x00",
            u"",
            u'{"text": "that looks like JSON"}',
            {u"temp": 36.5, u"\u00e9": [1, None, True, {}]},
            [],
            0,
            2**63,
            False,
            None,
            Binary(bytes(bytearray(range(256))), "application/x-all-bytes"),
        ):
            self.client.publish(self.queue, body)
            delivery = self.take()
            self.assertEqual((delivery.payload, type(delivery.payload)), (body, type(body)))
            self.client.ack(delivery)
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_keeps_its_fields(self):
        published = self.client.publish(
            self.queue,
            u"m",
            attributes={u"k": [1]},
            priority=7,
            content_type=u"text/x",
            type=u"t",
            version=2,
            trace_id=u"trace",
            deduplication_key=u"once",
            timestamp=1.5,
        )
        delivery = self.take(consumer_id=u"me", visibility_timeout_sec=60)
        self.assertEqual(delivery.message_key, published["messageKey"])
        self.assertEqual(delivery.message_id, published["messageId"])
        self.assertEqual((delivery.queue, delivery.attributes, delivery.priority), (self.queue, {u"k": [1]}, 7))
        self.assertEqual((delivery.content_type, delivery.type, delivery.version), (u"text/x", u"t", 2))
        self.assertEqual((delivery.trace_id, delivery.deduplication_key), (u"trace", u"once"))
        self.assertEqual((delivery.timestamp, delivery.attempt, delivery.consumer_id), (1.5, 1, u"me"))
        self.assertEqual(delivery.lease_until_engine_ms - delivery.engine_now_ms, 60000)

    def test_of_higher_priority_comes_first(self):
        for priority in (0, 9, 5, 9):
            self.client.publish(self.queue, priority, priority=priority)
        self.assertEqual([self.take().payload for _ in range(4)], [9, 9, 5, 0])
        self.assertIsNone(self.client.consume_next(self.queue))

    def test_can_be_released_extended_and_retried(self):
        self.client.set_policy(self.queue, {"retry": {"backoff": "fixed", "initialDelaySec": 0.2}})
        self.client.publish(self.queue, "m")
        first = self.take(visibility_timeout_sec=1)
        extended = self.client.extend_lease(first, visibility_timeout_sec=100)
        self.assertEqual(extended["leaseUntilEngineMs"] - extended["engineNowMs"], 100000)
        self.client.release(first)
        second = self.take()
        self.assertEqual(second.attempt, 1)
        with self.assertRaises(LeaseMismatch):
            self.client.ack(first)
        self.assertEqual(self.client.nack(second, requeue=True, reason="again")["state"], "delayed")
        with self.assertRaises(LeaseExpired):
            self.client.ack(second)
        third = self.take(wait_ms=PATIENCE_S * 1000)
        self.assertEqual((third.attempt, third.message_key), (2, first.message_key))
        self.client.ack(third)
        with self.assertRaises(MessageNotFound):
            self.client.ack(third)

    def test_that_is_rejected_is_a_dead_letter_until_it_is_reprocessed(self):
        self.client.publish(self.queue, u"out of range")
        self.assertEqual(self.client.nack(self.take(), reason=u"too hot")["state"], "dead")
        page = self.client.list_dlq(self.queue, preview_bytes=3)
        self.assertEqual((page["count"], page["messages"][0]["preview"]), (1, u"out"))
        self.assertEqual(page["messages"][0]["reason"], u"too hot")
        self.client.reprocess_dlq(page["messages"][0]["messageKey"])
        self.assertEqual(self.counts(), (1, 0, 0, 0))
        self.assertEqual(self.take().attempt, 1)

    def test_sent_twice_is_published_once(self):
        request = self.client.prepare("publish", {"queue": self.queue, "message": "once"})
        first = self.client.send(request)
        self.assertEqual(self.client.send(request), first)
        self.assertEqual(self.counts(), (1, 0, 0, 0))


class ALongPoll(WireTest):
    def test_is_woken_by_a_publish(self):
        got = []
        waiting = threading.Thread(target=lambda: got.append(self.take(wait_ms=PATIENCE_S * 1000)))
        waiting.start()
        with Client(IPC_ROOT, timeout=PATIENCE_S) as other:
            wait_until(lambda: other.metrics()["mailbox"]["parked"] > 0, "the poll waits")
            other.publish(self.queue, u"wake up")
        waiting.join(PATIENCE_S)
        self.assertEqual(got[0].payload, u"wake up")

    def test_ends_when_its_time_is_over(self):
        self.assertIsNone(self.client.consume_next(self.queue, wait_ms=20))

    def test_that_was_given_up_takes_no_message(self):
        request = self.client.prepare(
            "consume_next", {"queue": self.queue, "waitMs": PATIENCE_S * 1000, "waitLock": True}
        )
        try:
            self.assertIsNone(self.client.send(request, timeout=0.2)["message"])  # over the lane: the wait is ended
        except RequestTimeout as timeout:  # over files: the request is withdrawn
            self.assertIs(timeout.request, request)
        self.client.publish(self.queue, "m")
        self.assertEqual(self.counts(), (1, 0, 0, 0))


class AQueue(WireTest):
    def test_that_is_paused_refuses_until_it_is_resumed(self):
        self.client.publish(self.queue, "m")
        self.assertTrue(self.client.pause(self.queue)["paused"]["consume"])
        self.assertIsNone(self.client.consume_next(self.queue))
        self.client.pause(self.queue, operation="publish")
        with self.assertRaises(Paused):
            self.client.publish(self.queue, "m")
        self.client.resume(self.queue, operation="publish")
        self.client.resume(self.queue)
        self.client.ack(self.take())

    def test_has_a_policy(self):
        with self.assertRaises(QueueNotFound):
            self.client.get_policy(self.queue)
        self.client.set_policy(self.queue, {"retry": {"limit": 2}})
        policy = self.client.get_policy(self.queue)
        self.assertEqual((policy["policy"]["retry"]["limit"], policy["override"]), (2, {"retry": {"limit": 2}}))
        with self.assertRaises(InvalidRequest):
            self.client.set_policy(self.queue, {"retries": 2})

    def test_is_listed(self):
        self.client.publish(self.queue, "m")
        page = self.client.list_queues(limit=1, after=self.queue[:-1])
        self.assertEqual(page["queues"][0]["queue"], self.queue)

    def test_with_a_name_of_foreign_letters_works(self):
        self.queue += u"-\u20ac/..\\"
        self.client.publish(self.queue, "m")
        self.client.ack(self.take())


class AClientId(WireTest):
    def test_may_be_any_path_component_without_control_characters(self):
        for client_id in (u"dev:1", u"a@b", u"a b", u"-x", u"\uc13c\uc11c1", u"\U0001f600"):
            native = client_id.encode("utf-8") if sys.version_info[0] == 2 else client_id
            for given in (client_id, native):
                with Client(IPC_ROOT, client_id=given, timeout=PATIENCE_S) as client:
                    self.assertEqual(client.client_id, native)
                    payload = {"queue": self.queue, "message": "x"}
                    request = client.prepare("publish", payload, request_id=client_id + u":1")
                    self.assertTrue(client.send(request)["messageKey"])
                    delivery = client.consume_next(self.queue)
                    self.assertEqual(delivery.consumer_id, client_id)
                    client.ack(delivery)

    def test_is_refused_if_it_is_none(self):
        too_long = u"\uc13c" * 43
        for wrong in (u"", u".", u"..", u".x", u"a/b", u"a\nb", u"\x85", u"a\u2028b", u"\u202e", too_long, b"\xff", 7):
            with self.assertRaises(InvalidArgument):
                Client(IPC_ROOT, client_id=wrong)


class TheDaemon(WireTest):
    def test_is_seen_running(self):
        self.assertIs(self.client.is_daemon_running(), True)

    def test_reports_health_and_metrics(self):
        self.assertEqual(self.client.health()["status"], "ok")
        self.assertTrue(self.client.metrics()["requests"]["total"] > 0)

    def test_refuses_with_a_code(self):
        with self.assertRaises(ServerError) as caught:
            self.client.call("no_such_command")
        self.assertEqual(caught.exception.code, "ERR_UNKNOWN_COMMAND")


class TheCommandLine(WireTest):
    def postroom(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "postroom_client", "--json"] + list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        output = process.communicate(b"")[0]
        return process.returncode, json.loads(output.decode("ascii"))

    def test_carries_a_message_through_its_life(self):
        self.assertEqual(self.postroom("consume", "--queue", self.queue)[0], 4)
        status, result = self.postroom("publish", "--queue", self.queue, "--message", '{"temp": 36.5}')
        self.assertEqual((status, result["ok"]), (0, True))
        status, result = self.postroom("consume", "--queue", self.queue, "--consumer-id", "consumer-01")
        self.assertEqual((status, result["data"]["message"]["payload"]), (0, '{"temp": 36.5}'))
        lease = result["data"]["lease"]
        settled = ["--message-key", lease["messageKey"], "--lease-id", lease["leaseId"]]
        self.assertEqual(self.postroom("nack", "--reason", "error", *settled)[0], 0)
        status, result = self.postroom("list-dlq", "--queue", self.queue, "--limit", "50")
        self.assertEqual((status, result["data"]["count"]), (0, 1))
        self.assertEqual(self.postroom("reprocess", "--message-key", lease["messageKey"])[0], 0)
        self.assertEqual(self.postroom("consume", "--queue", self.queue, "--ack")[0], 0)
        status, result = self.postroom("ack", *settled)
        self.assertEqual((status, result["error"]["code"]), (1, "ERR_MESSAGE_NOT_FOUND"))

    def test_shows_people_how_the_daemon_is(self):
        for command, words in (("health", b"status  ok\n"), ("metrics", b"rates, last 60 s\n")):
            self.assertIn(words, subprocess.check_output([sys.executable, "-m", "postroom_client", command]))


if __name__ == "__main__":
    unittest.main()
