# -*- coding: utf-8 -*-
"""Batches and workers against a running daemon: ``python wire_work.py`` with its mailbox in POSTROOM_IPC_ROOT, and in
POSTROOM_OUT a directory to write into."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

from postroom_client import (
    Binary,
    Client,
    InvalidArgument,
    InvalidRequest,
    LeaseExpired,
    NoReply,
    Reject,
    Retry,
    WorkerFailed,
    _mailbox_exchange,
    _process_pool,
)
from support import PATIENCE_S, wait_until

IPC_ROOT = os.environ["POSTROOM_IPC_ROOT"]
#: How often the client looks at what changes seldom, in seconds: less than in use, so that the tests are short.
_mailbox_exchange.CHECK_EVERY_S = _process_pool._CHECK_EVERY_S = _process_pool._REPLACE_S = 0.05


class WorkTest(unittest.TestCase):
    def setUp(self):
        self.queue = "work-" + uuid.uuid4().hex
        self.client = Client(IPC_ROOT, timeout=PATIENCE_S)
        self.addCleanup(self.client.close)
        logging.getLogger("postroom_client").setLevel(logging.CRITICAL)

    def publish(self, *bodies):
        results = self.client.publish_batch([{"message": body} for body in bodies], queue=self.queue)["results"]
        return [result["messageKey"] for result in results]

    def counts(self):
        metrics = self.client.status(self.queue)["metrics"]
        return {state: count for state, count in metrics.items() if count}

    def reasons(self):
        letters = self.client.list_dlq(self.queue)["messages"]
        return [(letter["reasonCode"], letter["reason"]) for letter in letters]

    def keep_retries_away(self):
        self.client.set_policy(self.queue, {"retry": {"initialDelaySec": 3600, "maxDelaySec": 3600}})

    def in_child(self, work):
        """A process that does ``work`` and exits with its value; it is ended with the test."""
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                status = work() or 0
            finally:
                os._exit(status)
        self.addCleanup(end, pid)
        return pid


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except OSError:
        pass


def status_of(pid):
    """Wait for the end of a process: its exit status, or minus the signal."""
    ended = []

    def look():
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.append(status)
        return found

    wait_until(look, "the process ends")
    status = ended[0]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class ABatch(WorkTest):
    def test_has_a_result_for_each_message(self):
        results = self.client.publish_batch(
            [{"message": Binary(b"\x00\xff")}, {"message": u"\u20ac", "priority": 1}, {"message": 1, "delay_ms": -1}],
            queue=self.queue,
        )["results"]
        self.assertEqual([sorted(result) for result in results], [["messageId", "messageKey"]] * 2 + [["error"]])
        deliveries = self.client.consume_next(self.queue, max=10)
        bodies = [u"\u20ac", Binary(b"\x00\xff", "application/octet-stream")]
        self.assertEqual([one.payload for one in deliveries], bodies)
        self.assertEqual(self.client.ack_batch(deliveries)["results"], [{}, {}])
        self.assertTrue(all(one.settled for one in deliveries))
        self.assertEqual(self.client.consume_next(self.queue, max=10), [])

    def test_is_nacked_item_by_item(self):
        self.publish("a", "b")
        first, second = self.client.consume_next(self.queue, max=2)
        items = [first, {"message_key": second, "requeue": True, "delay_ms": 3600000, "reason": "later"}, first]
        results = self.client.nack_batch(items)["results"]
        self.assertEqual([result.get("state") for result in results], ["dead", "delayed", None])
        self.assertEqual(self.counts(), {"dlq": 1, "delayed": 1})

    def test_of_any_number_is_sent_in_parts(self):
        client = Client(IPC_ROOT, timeout=PATIENCE_S, max_request_bytes=20000)
        self.addCleanup(client.close)
        bodies = [u"%d\u20ac" % number * 50 for number in range(1, 200)]
        results = client.publish_many(({"message": body} for body in bodies), queue=self.queue)
        self.assertEqual(len(results), len(bodies))
        taken = self.client.consume_next(self.queue, max=1000)
        self.assertEqual([one.payload for one in taken], bodies)

    def test_that_is_not_a_batch_is_not_sent(self):
        for wrong in ({}, "text", [7], [{"queue": self.queue}], [{"message": 1, "delayMs": 5}]):
            self.assertRaises(InvalidArgument, self.client.publish_batch, wrong)

    def test_of_nothing_is_not_sent_either(self):
        for method in (self.client.publish_batch, self.client.ack_batch, self.client.nack_batch):
            self.assertEqual(method([]), {"results": []})

    def test_with_an_ack_is_all_or_nothing(self):
        self.publish("step")
        delivery = self.client.consume_next(self.queue)
        wrong = [{"queue": self.queue, "message": 1}, {"queue": self.queue + ".dlq", "message": 2}]
        self.assertRaises(InvalidRequest, self.client.ack_and_publish, delivery, wrong)
        self.assertFalse(delivery.settled)
        self.assertEqual(self.counts(), {"inflight": 1})
        self.client.ack_and_publish(delivery, wrong[:1])
        self.assertTrue(delivery.settled)
        self.assertEqual(self.counts(), {"ready": 1})


class AMessageInAWithStatement(WorkTest):
    def test_keeps_its_lease_and_is_acknowledged(self):
        self.publish("slow")
        with self.client.consume(self.queue, visibility_timeout_sec=2) as delivery:
            first_end = delivery.lease_until
            wait_until(lambda: delivery.lease_until > first_end + 300, "the lease was extended beyond its first end")
            self.assertEqual(self.counts(), {"inflight": 1})
        self.assertTrue(delivery.settled)
        self.assertEqual(self.counts(), {})

    def test_returns_none_when_the_queue_is_empty(self):
        with self.client.consume(self.queue) as delivery:
            self.assertIsNone(delivery)

    def test_is_retried_with_the_reason_that_was_raised(self):
        self.keep_retries_away()
        self.publish("bad")

        def work():
            with self.client.consume(self.queue):
                raise ValueError(u"no \u20ac" + u"x" * 1000)

        self.assertRaises(ValueError, work)
        self.assertEqual(self.counts(), {"delayed": 1})

    def test_becomes_a_dead_letter_if_it_is_not_to_be_retried(self):
        self.publish("bad", "worse", "worst")

        def work():
            with self.client.consume(self.queue, requeue=False):
                raise ValueError("two\nlines " + "x" * 1000)

        self.assertRaises(ValueError, work)
        with self.client.consume(self.queue):
            raise Reject("of no use")
        (_, long_reason), (code, reason) = self.reasons()
        self.assertTrue(long_reason.startswith("ValueError: two lines xxx"), long_reason)
        self.assertEqual(len(long_reason), 500)
        self.assertEqual((code, reason), ("REJECTED", "of no use"))

    def test_that_was_dead_before_is_not_delivered_again_at_once(self):
        self.publish("bad")
        self.client.nack(self.client.consume_next(self.queue))
        for error in (Reject("of no use"), Retry("later")):
            with self.client.consume(self.queue + ".dlq", visibility_timeout_sec=2) as letter:
                self.assertEqual((letter.payload, letter.failure["reasonCode"]), ("bad", "REJECTED"))
                raise error
            self.assertIsNone(self.client.consume_next(self.queue + ".dlq"))
            wait_until(lambda: letter.lease_until < time.time() * 1000, "its lease is over")
        self.assertEqual(self.counts(), {"dlq": 1})

    def test_waits_for_as_long_as_the_body_asks(self):
        self.publish("busy")
        with self.client.consume(self.queue, requeue=False):
            raise Retry("busy", delay_ms=3600000)
        self.assertEqual(self.counts(), {"delayed": 1})

    def test_is_released_when_the_keyboard_interrupts(self):
        self.publish("later")

        def work():
            with self.client.consume(self.queue):
                raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, work)
        self.assertEqual(self.client.consume_next(self.queue).attempt, 1)

    def test_may_be_settled_by_the_body(self):
        self.publish("mine")
        with self.client.consume(self.queue) as delivery:
            self.client.nack(delivery, reason="by hand")
        self.assertEqual(self.reasons(), [("REJECTED", "by hand")])

    def test_whose_lease_is_lost_is_not_acknowledged(self):
        self.publish("lost")

        def work():
            with self.client.consume(self.queue, visibility_timeout_sec=2) as delivery:
                self.client.release(delivery.message_key, lease_id=delivery.lease_id)  # as if by somebody else
                wait_until(lambda: delivery.lease_lost, "the heartbeat has noticed it")

        self.assertRaises(LeaseExpired, work)
        self.assertEqual(self.counts(), {"ready": 1})

    def test_belongs_to_the_parent_after_a_fork(self):
        self.publish("shared")
        with self.client.consume(self.queue, visibility_timeout_sec=2) as delivery:
            consuming = self.client.consume(self.queue)
            consuming._delivery, consuming._pid = delivery, os.getpid()
            pid = self.in_child(lambda: consuming.__exit__(None, None, None))
            self.assertEqual(status_of(pid), 0)
            self.assertEqual(self.counts(), {"inflight": 1})
        self.assertEqual(self.counts(), {})


class AWorker(WorkTest):
    def test_acknowledges_what_its_handler_returns_from(self):
        self.publish("a", "b", "c")
        seen = []
        count = self.client.worker(self.queue, lambda one: seen.append(one.payload), until_empty=True, prefetch=2)
        self.assertEqual((count, seen, self.counts()), (3, ["a", "b", "c"], {}))

    def test_continues_after_its_handler_has_raised(self):
        self.keep_retries_away()
        self.publish("rejected", "failed", "fine")

        def handle(delivery):
            if delivery.payload == "rejected":
                raise Reject("never")
            if delivery.payload == "failed":
                raise ValueError("not now")

        self.assertEqual(self.client.worker(self.queue, handle, until_empty=True), 3)
        self.assertEqual(self.counts(), {"dlq": 1, "delayed": 1})

    def test_of_dead_letters_continues_after_those_that_fail_again(self):
        self.publish("worst", "bad", "mended")
        self.client.nack_batch(self.client.consume_next(self.queue, max=3))
        seen = []

        def handle(delivery):
            seen.append(delivery.payload)
            if delivery.payload == "worst":
                raise Reject("never")
            if delivery.payload == "bad":
                raise ValueError("still")

        self.assertEqual(self.client.worker(self.queue + ".dlq", handle, until_empty=True), 3)
        self.assertEqual((seen, self.counts()), (["worst", "bad", "mended"], {"dlq": 2}))

    def test_ends_after_so_many(self):
        self.publish("a", "b", "c")
        self.assertEqual(self.client.worker(self.queue, lambda one: None, max_messages=2, prefetch=10), 2)
        self.assertEqual(self.counts(), {"ready": 1})

    def test_refuses_unknown_options(self):
        self.assertRaises(InvalidArgument, self.client.worker, self.queue, None, prefetched=2)

    def test_that_waits_ends_on_a_signal(self):
        before = signal.getsignal(signal.SIGTERM)
        parent = os.getpid()
        ready = os.pipe()

        def kill():
            os.read(ready[0], 1)
            os.kill(parent, signal.SIGTERM)

        self.in_child(kill)
        self.assertEqual(self.client.worker(self.queue, None, stop=lambda: os.write(ready[1], b".") < 0), 0)
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)
        self.publish("not for the one that went")
        self.assertEqual(self.counts(), {"ready": 1})

    def test_finishes_its_message_and_releases_the_rest_on_a_signal(self):
        self.publish("a", "b", "c")
        done = []

        def handle(delivery):
            os.kill(os.getpid(), signal.SIGTERM)
            done.append(delivery.payload)

        self.assertEqual(self.client.worker(self.queue, handle, prefetch=3), 1)
        self.assertEqual((done, self.counts()), (["a"], {"ready": 2}))
        self.assertEqual(self.client.consume_next(self.queue).attempt, 1)

    def test_releases_its_message_on_a_second_interrupt(self):
        self.publish("a")

        def handle(delivery):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)  # where a signal is noticed
            raise AssertionError("not interrupted")

        self.assertRaises(KeyboardInterrupt, self.client.worker, self.queue, handle)
        self.assertEqual(self.counts(), {"ready": 1})

    def test_extends_the_lease_of_what_waits_for_its_turn(self):
        self.publish("slow", "next")
        seen = []

        def handle(delivery):
            seen.append((delivery.payload, delivery.attempt))
            first_end = delivery.lease_until
            wait_until(lambda: delivery.lease_until > first_end + 300, "the lease was extended")

        self.client.worker(self.queue, handle, visibility_timeout_sec=2, prefetch=2, until_empty=True)
        self.assertEqual((seen, self.counts()), ([("slow", 1), ("next", 1)], {}))

    def test_works_in_another_thread_until_it_is_stopped(self):
        self.publish("a")
        done, counts = [], []

        def work():
            counts.append(self.client.worker(self.queue, done.append, stop=lambda: bool(done)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(PATIENCE_S)
        self.assertEqual(counts, [1])

    def test_in_several_processes_shares_the_work(self):
        self.publish(*range(20))
        total = self.client.worker(self.queue, lambda one: None, processes=3, until_empty=True)
        self.assertEqual((total, self.counts()), (20, {}))

    def test_passes_a_signal_on_to_its_processes(self):
        self.publish("a", "b")

        def handle(delivery):
            os.kill(os.getppid(), signal.SIGTERM)

        def work():
            return self.client.worker(self.queue, handle, processes=2)

        self.assertLess(status_of(self.in_child(work)), 3)
        self.assertNotIn("inflight", self.counts())

    def test_in_several_processes_ends_on_a_signal_that_comes_while_it_starts_them(self):
        def work():
            fork = os.fork

            def interrupted():
                pid = fork()
                if pid:
                    os.kill(os.getpid(), signal.SIGTERM)
                return pid

            os.fork = interrupted
            return self.client.worker(self.queue, None, processes=2)

        for _ in range(10):  # often, but not always, too early for the new process
            self.assertEqual(status_of(self.in_child(work)), 0)

    def test_replaces_a_process_that_was_killed(self):
        self.client.set_policy(self.queue, {"retry": {"initialDelaySec": 0.01}})
        self.publish("deadly", "a", "b", "c")
        killed = os.pipe()

        def handle(delivery):
            if delivery.payload == "deadly" and delivery.attempt == 1:
                os.write(killed[1], b".")
                os.kill(os.getpid(), signal.SIGKILL)

        options = {"processes": 2, "visibility_timeout_sec": 0.3, "stop": lambda: not self.counts()}
        self.assertGreaterEqual(self.client.worker(self.queue, handle, **options), 1)
        self.assertEqual(os.read(killed[0], 2), b".")
        self.assertEqual(self.counts(), {})

    def test_fails_when_one_of_its_processes_does(self):
        self.publish("a")

        def handle(delivery):
            raise SystemExit(7)

        self.assertRaises(WorkerFailed, self.client.worker, self.queue, handle, processes=2)

    def test_outlives_its_parent_no_longer_than_its_message(self):
        self.publish("a")
        reading, writing = os.pipe()

        def work():
            os.close(reading)
            self.client.worker(self.queue, lambda one: os.write(writing, b"%d\n" % os.getpid()), processes=2)

        pid = self.in_child(work)
        os.close(writing)
        os.read(reading, 32)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertEqual(os.read(reading, 1), b"")  # the end of the pipe: the last process has ended


class ARequest(WorkTest):
    def serve(self, handle, count):
        client = Client(IPC_ROOT, timeout=PATIENCE_S)
        over = threading.Event()

        def work():
            client.worker(self.queue, lambda one: handle(client, one), max_messages=count, stop=over.is_set)
            client.close()

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join, PATIENCE_S)
        self.addCleanup(over.set)

    def test_is_replied_to(self):
        self.serve(lambda client, one: client.reply(one, sum(one.payload), attributes={"of": "three"}), 2)
        reply = self.client.request(self.queue, [1, 2, 3])
        self.assertEqual((reply.payload, reply.attributes, reply.settled), (6, {"of": "three"}, True))
        self.assertEqual(self.client.request(self.queue, [4]).payload, 4)

    def test_of_each_thread_has_its_own_reply(self):
        self.serve(lambda client, one: client.reply(one, one.payload), 20)
        replies = []

        def ask(number):
            for turn in range(5):
                replies.append(self.client.request(self.queue, [number, turn]).payload == [number, turn])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(replies, [True] * 20)

    def test_that_nobody_replies_to_times_out_and_is_withdrawn(self):
        self.assertRaises(NoReply, self.client.request, self.queue, "anybody?", timeout=2)
        wait_until(lambda: self.counts() == {"dlq": 1}, "its time is over")

    def test_ignores_a_late_reply(self):
        self.assertRaises(NoReply, self.client.request, self.queue, "late", timeout=2)
        wait_until(lambda: self.counts() == {"dlq": 1}, "its time is over")
        (mine,) = self.client._reply_queues._idle.get()
        self.client.publish(mine.name, "too late", correlation_id="the last one's")
        self.serve(lambda client, one: client.reply(one, "in time"), 1)
        self.assertEqual(self.client.request(self.queue, "again").payload, "in time")
        self.assertEqual(self.client.status(mine.name)["metrics"]["ready"], 0)

    def test_waits_in_a_queue_that_is_deleted_automatically(self):
        self.assertRaises(NoReply, self.client.request, self.queue, "x", timeout=2)
        (mine,) = self.client._reply_queues._idle.get()
        policy = self.client.get_policy(mine.name)["policy"]
        self.assertEqual((policy["ttlAction"], policy["dlq"]["enabled"]), ("drop", False))
        self.assertGreaterEqual(policy["expireAfterIdleSec"], 300)

    def test_checks_that_its_queue_exists_even_if_it_is_always_busy(self):
        self.assertRaises(NoReply, self.client.request, self.queue, "x", timeout=2)
        (mine,) = self.client._reply_queues._idle.get()
        self.client.delete_queue(mine.name)
        for _ in range(2):  # two minutes pass between one request and the next
            mine._created_at -= 120
            self.assertRaises(NoReply, self.client.request, self.queue, "x", timeout=2)
        self.assertTrue(self.client.status(mine.name)["exists"])

    def test_that_nobody_waits_for_gets_no_reply(self):
        self.publish("no request")
        self.client.publish(self.queue, "gone", reply_to="reply.nobody." + uuid.uuid4().hex)
        replied = [self.client.reply(one, "reply") for one in self.client.consume_next(self.queue, max=2)]
        self.assertEqual(replied, [False, False])
        self.assertRaises(InvalidArgument, self.client.reply, "no delivery", "reply")


SCRIPT = u"""#!/bin/sh
body=$(cat)
env | grep ^POSTROOM_ | sort > "$OUT/env"
printf '%s' "$body" > "$OUT/body"
case $body in
    *reject*) echo "first" >&2; echo "of no use" >&2; echo >&2; exit 65 ;;
    *fail*) exit 7 ;;
    *sleep*) touch "$OUT/started"; sleep 600 ;;
    *finish*) trap 'touch "$OUT/told"' TERM; touch "$OUT/started"
        while [ ! -e "$OUT/told" ]; do sleep 0.01; done; exit 0 ;;
esac
"""


class AProgramForEachMessage(WorkTest):
    def setUp(self):
        WorkTest.setUp(self)
        self.keep_retries_away()
        self.out = os.path.join(os.environ["POSTROOM_OUT"], self.queue)
        os.makedirs(self.out)
        self.script = os.path.join(self.out, "script.sh")
        with open(self.script, "wb") as file:
            file.write(SCRIPT.encode("ascii"))
        os.chmod(self.script, 0o755)

    def start(self, *options):
        command = [sys.executable, "-m", "postroom_client", "--ipc-root", IPC_ROOT, "work", "--queue", self.queue]
        environment = dict(os.environ, OUT=self.out)
        process = subprocess.Popen(
            command + list(options) + ["--", self.script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def work(self, *options):
        """Run it to its end: status, output, errors."""
        process = self.start("--until-empty", *options)
        output, errors = process.communicate()
        return process.returncode, output, errors

    def file(self, name):
        with open(os.path.join(self.out, name), "rb") as file:
            return file.read()

    def has(self, name):
        return lambda: os.path.exists(os.path.join(self.out, name))

    def test_gets_the_body_and_the_facts(self):
        (key,) = self.publish(u"caf\u00e9")
        self.client.consume_next(self.queue)
        self.client.release(key, consumer_id=None)
        self.assertEqual(self.work()[0], 0)
        self.assertEqual(self.file("body"), u"caf\u00e9".encode("utf-8"))
        facts = dict(line.split(b"=", 1) for line in self.file("env").splitlines())
        self.assertEqual(facts[b"POSTROOM_MESSAGE_KEY"], key.encode("ascii"))
        self.assertEqual(facts[b"POSTROOM_QUEUE"], self.queue.encode("ascii"))
        self.assertEqual((facts[b"POSTROOM_ATTEMPT"], facts[b"POSTROOM_ATTRIBUTES"]), (b"1", b"{}"))
        self.assertEqual(facts[b"POSTROOM_IPC_ROOT"], IPC_ROOT.encode("utf-8"))
        self.assertNotIn(b"POSTROOM_TYPE", facts)
        self.assertEqual(self.counts(), {})

    def test_gets_bytes_as_bytes_and_headers_in_its_environment(self):
        body = bytes(bytearray(range(1, 256)))
        headers = {"attributes": {u"\u00e9": u"\u20ac"}, "type": u"\u00e9", "reply_to": "r", "content_type": "x/y"}
        self.client.publish(self.queue, Binary(body), **headers)
        self.work()
        self.assertEqual(self.file("body").rstrip(b"\n"), body.rstrip(b"\n"))
        facts = dict(line.split(b"=", 1) for line in self.file("env").splitlines())
        self.assertEqual(json.loads(facts[b"POSTROOM_ATTRIBUTES"].decode("utf-8")), headers["attributes"])
        self.assertEqual(facts[b"POSTROOM_TYPE"].decode("utf-8"), headers["type"])
        self.assertEqual((facts[b"POSTROOM_REPLY_TO"], facts[b"POSTROOM_CONTENT_TYPE"]), (b"r", b"x/y"))

    def test_gets_the_cause_of_death_of_a_dead_letter(self):
        self.publish("mended")
        self.client.nack(self.client.consume_next(self.queue), reason=u"caf\u00e9")
        self.queue += ".dlq"
        self.assertEqual(self.work()[0], 0)
        facts = dict(line.split(b"=", 1) for line in self.file("env").splitlines())
        self.assertEqual(facts[b"POSTROOM_REASON_CODE"], b"REJECTED")
        self.assertEqual(facts[b"POSTROOM_REASON"], u"caf\u00e9".encode("utf-8"))

    def test_decides_by_its_exit_status(self):
        self.publish("reject this", "fail with this", "fine")
        status, _, errors = self.work()
        self.assertEqual(status, 0)
        self.assertEqual(self.counts(), {"dlq": 1, "delayed": 1})
        self.assertEqual(self.reasons(), [("REJECTED", "exit status 65: of no use")])
        self.assertIn(b"failed: exit status 7", errors)
        self.assertIn(b"first\n", errors)

    def test_that_takes_too_long_is_ended_and_its_message_retried(self):
        self.publish("sleep")
        status, _, errors = self.work("--timeout", "0.3")
        self.assertEqual(status, 0)
        self.assertIn(b"the time limit", errors)
        self.assertEqual(self.counts(), {"delayed": 1})

    def test_has_its_lease_extended(self):
        self.publish("finish")
        process = self.start("--until-empty", "--visibility", "4")
        wait_until(self.has("started"), "the program runs")
        ends = set()

        def extended():
            ends.update(one["leaseUntilEngineMs"] for one in self.client.list_inflight(self.queue)["messages"])
            return len(ends) > 2

        wait_until(extended, "the lease was extended twice")
        with open(os.path.join(self.out, "told"), "w"):
            pass
        process.communicate()
        self.assertEqual((process.returncode, self.counts()), (0, {}))

    def test_finishes_its_message_when_it_is_stopped(self):
        self.publish("finish", "never begun")
        process = self.start()
        wait_until(self.has("started"), "the program runs")
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual((process.returncode, self.counts()), (0, {"ready": 1}))
        self.assertTrue(self.has("told")())

    def test_releases_its_message_when_the_signal_has_ended_the_program(self):
        self.publish("sleep")
        process = self.start()
        wait_until(self.has("started"), "the program runs")
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual((process.returncode, self.counts()), (0, {"ready": 1}))
        self.assertEqual(self.client.consume_next(self.queue).attempt, 1)

    def test_runs_side_by_side_in_several_processes(self):
        self.publish(*["text"] * 6)
        status, output, _ = self.work("--processes", "3", "--json")
        self.assertEqual(status, 0)
        self.assertEqual(json.loads(output.decode("ascii"))["data"], {"messages": 6})

    def test_that_cannot_be_run_takes_no_message(self):
        self.publish("x")
        os.chmod(self.script, 0o644)
        status, _, errors = self.work()
        self.assertEqual((status, self.counts()), (2, {"ready": 1}))
        self.assertIn(b"cannot run", errors)


if __name__ == "__main__":
    unittest.main()
