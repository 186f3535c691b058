# -*- coding: utf-8 -*-
"""The client against a mailbox whose other side is played by the test."""

import errno
import fcntl
import os
import re
import signal
import stat
import sys
import threading
import time
import unittest
import warnings

from postroom_client import (
    BadResponse,
    Binary,
    Client,
    DaemonNotRunning,
    InvalidArgument,
    LeaseExpired,
    MailboxError,
    RequestRejected,
    RequestTimeout,
    RequestWithdrawn,
    _mailbox_exchange,
    _watch,
)
from postroom_client._process_local import ProcessLocal
from support import PATIENCE_S, MailboxTest, wait_until, write_response


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def descriptors(root):
    """(number, what it is) of this process's descriptors of inotify and of files below ``root``."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + fd)
        except (IOError, OSError):
            continue  # closed since it was listed
        if path.endswith("inotify") or path.startswith(root + "/re") and path.endswith(".json"):
            found.add((int(fd), path))
    return found


def is_locked(path):
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (IOError, OSError) as error:
            return error.errno in (errno.EAGAIN, errno.EACCES)
    return False


class ACall(MailboxTest):
    def test_sends_an_envelope_and_returns_the_data(self):
        self.answer()
        before_ms = int(time.time() * 1000)
        echo = self.client(client_id="me").call("status", {"queue": "q"}, timeout=PATIENCE_S, request_id="r-1")["echo"]
        self.assertEqual((echo["requestId"], echo["clientId"], echo["command"]), ("r-1", "me", "status"))
        self.assertEqual(echo["payload"], {"queue": "q"})
        self.assertTrue(before_ms <= echo["timestampMs"] <= time.time() * 1000)
        self.assertEqual(echo["deadlineMs"], echo["timestampMs"] + PATIENCE_S * 1000)

    def test_leaves_nothing_behind(self):
        self.answer()
        with self.client() as client:
            client.health()
            box = os.path.join(self.root, "responses", client.client_id)
            self.assertEqual(os.listdir(box), [])
        self.assertEqual(os.listdir(os.path.join(self.root, "responses")), [])
        wait_until(lambda: not self.requests(), "the request is gone")

    def test_keeps_the_response_directory_of_a_given_id(self):
        self.answer()
        with self.client(client_id="me") as client:
            client.health()
        self.assertEqual(os.listdir(os.path.join(self.root, "responses")), ["me"])

    def test_sets_modes_whatever_the_umask_is(self):
        modes = []
        self.answer(lambda request, name: modes.append(mode_of(os.path.join(self.root, "requests", name))) or {})
        self.addCleanup(os.umask, os.umask(0o777))
        self.client(client_id="me").health()
        self.assertEqual((modes, mode_of(os.path.join(self.root, "responses", "me"))), ([0o640], 0o770))

    def test_names_files_so_that_they_sort_by_time(self):
        answerer = self.answer()
        client = self.client()
        for number in range(20):
            client.call("health", {"number": number})
        names = [name for name, _ in answerer.seen]
        self.assertEqual(names, sorted(names))
        self.assertEqual(len(set(names)), 20)
        self.assertTrue(re.match(r"\d{17}-[0-9a-f]{8}-[0-9a-f]{32}\.json\Z", names[0]), names[0])

    def test_raises_what_the_daemon_answers(self):
        error = {"code": "ERR_LEASE_EXPIRED", "message": "over"}
        self.answer(lambda request, name: {"ok": False, "error": error})
        with self.assertRaises(LeaseExpired):
            self.client().ack("msg:q:1", lease_id="l")

    def test_does_not_touch_a_file_before_the_first_command(self):
        repr(self.client())
        self.assertEqual(os.listdir(os.path.join(self.root, "responses")), [])
        self.assertEqual(descriptors(self.root), set())

    def test_works_after_a_change_of_the_working_directory(self):
        self.answer()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.parent)
        client = Client("ipc", timeout=PATIENCE_S, transport="mailbox")
        self.addCleanup(client.close)
        os.chdir("/")
        client.health()

    def test_takes_paths_of_every_kind(self):
        self.answer()
        text = self.root if sys.version_info[0] == 3 else self.root.decode("utf-8")
        paths = [text, text.encode("utf-8")]
        if sys.version_info[0] == 3:
            import pathlib

            paths.append(pathlib.Path(self.root))
        for path in paths:
            with Client(path, timeout=PATIENCE_S, transport="mailbox") as client:
                client.health()

    def test_refuses_what_is_too_large_before_it_writes(self):
        client = self.client(max_request_bytes=1000)
        with self.assertRaises(InvalidArgument) as caught:
            client.publish("q", u"x" * 1000)
        self.assertIn("max_request_bytes (1000)", str(caught.exception))
        self.assertEqual(self.requests(), [])

    def test_needs_a_timeout_that_is_a_number(self):
        for bad in (-1, "5", None, float("inf"), float("nan"), True):
            with self.assertRaises(InvalidArgument):
                Client(self.root, timeout=bad)
        with self.assertRaises(InvalidArgument):
            self.client().health(timeout="5")

    def test_is_refused_by_a_closed_client(self):
        client = self.client()
        client.close()
        client.close()
        with self.assertRaises(InvalidArgument):
            client.health()

    def test_closes_its_descriptors(self):
        self.answer()
        with self.client() as client:
            client.health()
            client.consume_next("q", wait_ms=10)
            self.assertEqual(len(descriptors(self.root)), 1)
        self.assertEqual(descriptors(self.root), set())

    def test_is_woken_by_inotify_if_available(self):
        self.answer()
        for client_id in (None, "me", u"me"):
            client = self.client(client_id=client_id)
            client.health()
            self.assertEqual([type(watch) for watch in client._transport._idle_watches.get()], [_watch.InotifyWatch])

    def test_works_below_a_directory_with_foreign_letters(self):
        name = u"b\xfcro \u20ac".encode("utf-8") if sys.version_info[0] == 2 else u"b\xfcro \u20ac"
        self.root = os.path.join(self.parent, name)
        self.make_mailbox()
        self.answer()
        paths = [self.root] if sys.version_info[0] == 3 else [self.root, self.root.decode("utf-8")]
        for path in paths:
            with Client(path, client_id=u"me", timeout=PATIENCE_S, transport="mailbox") as client:
                client.call(u"health", request_id=u"r")
                with self.assertRaises(DaemonNotRunning) as caught:
                    Client(path + path, timeout=0).health()
                str(caught.exception)

    def test_polls_if_inotify_is_not_available(self):
        self.answer()
        client = self.client(polling=True)
        client.health()
        self.assertEqual([type(watch) for watch in client._transport._idle_watches.get()], [_watch.SleepingWatch])
        self.patch(_watch, InotifyWatch=self.fail_to_watch)
        client = self.client()
        client.health()
        self.assertEqual([type(watch) for watch in client._transport._idle_watches.get()], [_watch.SleepingWatch])

    def fail_to_watch(self, directory, identity):
        raise OSError(errno.EMFILE, "too many instances")

    def test_finds_its_answer_after_its_response_directory_was_recreated(self):
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.02)
        client = self.client(client_id="me")
        client_box = os.path.join(self.root, "responses", "me")

        def remove_then_answer(request, name):
            first = os.stat(client_box).st_ino
            os.rename(client_box, client_box + ".away")
            wait_until(lambda: os.path.isdir(client_box) and os.stat(client_box).st_ino != first, "there is a new box")
            return {"found": True}

        self.answer(remove_then_answer)
        self.assertEqual(client.health(), {"found": True})


class ADelivery(MailboxTest):
    def test_is_not_waited_for_with_a_time_that_is_not_a_number(self):
        with self.assertRaises(InvalidArgument) as caught:
            self.client().consume_next("q", wait_ms="1")
        self.assertEqual(str(caught.exception), "wait_ms must be an integer, not '1'")

    def test_is_settled_by_its_own_lease(self):
        seen = []

        def reply(request, name):
            seen.append((request["command"], request["payload"]))
            message = {"messageKey": "k", "payload": "AP8=", "encoding": "base64"}
            return {"message": message, "lease": {"leaseId": "l"}}

        self.answer(reply)
        client = self.client()
        delivery = client.consume_next("q", visibility_timeout_sec=5)
        self.assertEqual(delivery.payload, Binary(b"\x00\xff"))
        client.extend_lease(delivery, visibility_timeout_sec=1.5)
        client.release(delivery)
        client.nack(delivery, reason="r", requeue=True)
        client.ack(delivery)
        client.ack("other", lease_id="m", consumer_id="c")
        self.assertEqual(
            seen,
            [
                ("consume_next", {"queue": "q", "visibilityTimeoutSec": 5, "payloadAs": "value"}),
                ("extend_lease", {"messageKey": "k", "leaseId": "l", "visibilityTimeoutSec": 1.5}),
                ("release", {"messageKey": "k", "leaseId": "l"}),
                ("nack", {"messageKey": "k", "leaseId": "l", "reason": "r", "requeue": True}),
                ("ack", {"messageKey": "k", "leaseId": "l"}),
                ("ack", {"messageKey": "other", "leaseId": "m", "consumerId": "c"}),
            ],
        )

    def test_returns_none_when_the_queue_is_empty(self):
        self.answer(lambda request, name: {"message": None})
        self.assertIsNone(self.client().consume_next("q"))


class AMissingAnswer(MailboxTest):
    def test_without_a_daemon_is_distinguished_from_a_slow_daemon(self):
        client = self.client()
        self.assertIs(client.is_daemon_running(), False)
        with self.assertRaises(DaemonNotRunning):
            client.health(timeout=0.02)
        self.hold_daemon_lock()
        self.assertIs(client.is_daemon_running(), True)
        with self.assertRaises(RequestTimeout):
            client.health(timeout=0.02)

    def test_withdraws_the_request_unless_it_is_kept(self):
        client = self.client()
        with self.assertRaises(DaemonNotRunning):
            client.health(timeout=0.01)
        self.assertEqual(self.requests(), [])
        with self.assertRaises(DaemonNotRunning) as caught:
            client.call("health", timeout=0.01, keep=True)
        self.assertEqual(self.requests(), [caught.exception.request.file_name])

    def test_can_be_asked_for_again_with_the_same_bytes_under_the_same_name(self):
        self.hold_daemon_lock()
        client = self.client()
        with self.assertRaises(RequestTimeout) as caught:
            client.publish("q", "once", timeout=0.01)
        request = caught.exception.request
        answerer = self.answer()
        self.assertEqual(client.send(request)["echo"]["payload"]["message"], "once")
        self.assertEqual(answerer.seen, [(request.file_name, request.data)])

    def test_that_came_late_is_read_without_sending_again(self):
        self.hold_daemon_lock()
        client = self.client(client_id="me")
        with self.assertRaises(RequestTimeout) as caught:
            client.health(timeout=0.01)
        request = caught.exception.request
        write_response(self.root, {"clientId": "me", "requestId": request.request_id}, {"late": True})
        self.assertEqual(client.send(request), {"late": True})
        self.assertEqual(self.requests(), [])

    def test_may_come_after_the_client_was_closed_so_the_response_directory_stays(self):
        with self.client() as client:
            with self.assertRaises(DaemonNotRunning):
                client.health(timeout=0.01)
            box = client.client_id
        self.assertEqual(os.listdir(os.path.join(self.root, "responses")), [box])

    def test_before_the_mailbox_exists_is_waited_for(self):
        os.rename(self.root, self.root + ".later")
        client = self.client()
        with self.assertRaises(DaemonNotRunning) as caught:
            client.health(timeout=0.02)
        self.assertIn(self.root + " does not exist", str(caught.exception))
        results = []
        thread = threading.Thread(target=lambda: results.append(client.health()))
        thread.start()
        os.rename(self.root + ".later", self.root)
        self.answer()
        thread.join(PATIENCE_S)
        self.assertEqual(len(results), 1)

    def test_to_a_request_that_vanished_makes_the_client_resend_it_unchanged(self):
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.01, RESEND_AFTER_S=0.03)
        answers = iter([None, None, {"third": True}])
        answerer = self.answer(lambda request, name: next(answers))
        self.assertEqual(self.client().publish("q", "m"), {"third": True})
        self.assertEqual(len(answerer.seen), 3)
        self.assertEqual(len(set(answerer.seen)), 1)

    def test_to_a_rejected_request_is_the_reason_and_it_is_not_resent(self):
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.01, RESEND_AFTER_S=0.03)

        def set_aside(request, name):
            with open(os.path.join(self.root, "dead", name + ".reason"), "w") as file:
                file.write('{"reason": "larger than 10 bytes", "movedAt": 1}')

        answerer = self.answer(set_aside)
        with self.assertRaises(RequestRejected) as caught:
            self.client().publish("q", "m")
        self.assertIn("larger than 10 bytes", str(caught.exception))
        answerer.stop()
        self.assertEqual(len(answerer.seen), 1)


class AMailbox(MailboxTest):
    def response(self, make):
        """Let ``make(path)`` put a response, and return the error that a call raises."""
        self.hold_daemon_lock()
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.01)  # what is not renamed into the box wakes nobody

        def reply(request, name):
            make(os.path.join(self.root, "responses", request["clientId"], request["requestId"] + ".json"))

        answerer = self.answer(reply)
        try:
            with self.assertRaises(BadResponse) as caught:
                self.client().health()
        finally:
            answerer.stop()
        return str(caught.exception)

    def test_with_a_symbolic_link_for_a_response_is_not_followed(self):
        self.assertIn("symbolic link", self.response(lambda path: os.symlink("/etc/hostname", path)))

    def test_with_a_pipe_for_a_response_does_not_block(self):
        self.assertIn("is not a regular file", self.response(os.mkfifo))

    def test_with_a_directory_for_a_response_is_refused(self):
        self.assertIn("is not a regular file", self.response(os.mkdir))

    def test_with_an_endless_response_is_not_read_into_memory(self):
        self.patch(_mailbox_exchange, RESPONSE_BYTES_LIMIT=100000)

        def put(path):
            with open(path + ".tmp", "wb") as file:
                file.truncate(10**12)
            os.rename(path + ".tmp", path)

        self.assertIn("larger than 100000 bytes", self.response(put))

    def test_with_a_response_of_another_user_is_not_believed(self):
        def put(path):
            with open(path + ".tmp", "wb") as file:
                file.write(b"{}")
            if os.geteuid() == 0:
                os.chown(path + ".tmp", 12345, -1)
            else:  # only root can give a file away
                foreign = os.stat_result((stat.S_IFREG, 0, 0, 1, 12345, 0, 2, 0, 0, 0))
                self.patch(_mailbox_exchange, stat_fd=lambda fd: foreign)
            os.rename(path + ".tmp", path)

        self.assertIn("was written by uid 12345", self.response(put))

    def test_with_a_response_of_the_daemons_user_is_believed(self):
        if os.geteuid() == 0:
            os.chown(os.path.join(self.root, "requests"), 12345, -1)

        def give_away(request, name):
            write_response(self.root, request, {"ours": True})

        self.answer(give_away)
        self.assertEqual(self.client().health(), {"ours": True})

    def test_whose_response_directory_is_not_a_directory_is_refused(self):
        with open(os.path.join(self.root, "responses", "me"), "w"):
            pass
        with self.assertRaises(MailboxError) as caught:
            self.client(client_id="me").health()
        self.assertIn("is not a directory", str(caught.exception))

    def test_whose_response_directory_is_a_link_is_refused(self):
        os.symlink(self.parent, os.path.join(self.root, "responses", "me"))
        with self.assertRaises(MailboxError):
            self.client(client_id="me").health()

    def test_in_which_no_response_directory_can_be_made_is_refused_at_once(self):
        self.forbid_boxes()
        with self.assertRaises(MailboxError) as caught:
            self.client(client_id="me").health()
        self.assertEqual(
            str(caught.exception),
            "cannot create the response directory %s: Permission denied; ask the device's owner to create it for this "
            "user, mode 0770"
            % os.path.join(self.root, "responses", "me"),
        )
        self.assertEqual(self.requests(), [])

    def test_that_is_elsewhere_is_named(self):
        for root, text in (
            (self.parent, "%s is not a mailbox, but %s is: did you mean that?" % (self.parent, self.root)),
            (self.root + "/nowhere", "%s/nowhere does not exist; start postroomd, or correct the path" % self.root),
            (self.root + "/dead", "%s/dead is not a mailbox: it has no directory requests; start" % self.root),
        ):
            with self.assertRaises(DaemonNotRunning) as caught:
                Client(root).health(timeout=0.01)
            self.assertIn(text, str(caught.exception))

    def test_that_cannot_be_written_says_so(self):
        self.patch(_mailbox_exchange, open_fd=self.refuse)
        with self.assertRaises(MailboxError) as caught:
            self.client().health()
        self.assertIn("No space left on device (free space on the device)", str(caught.exception))

    def refuse(self, *args):
        raise OSError(errno.ENOSPC, "full")


class ALongPoll(MailboxTest):
    def test_says_that_it_holds_a_lock_and_holds_it(self):
        locks = []

        def reply(request, name):
            locks.append(is_locked(os.path.join(self.root, "requests", name)))
            return {"message": None, "echo": request}

        answerer = self.answer(reply)
        self.client().consume_next("q", wait_ms=1234)
        self.assertEqual(locks, [True])
        self.assertIn(b'"waitMs":1234,"waitLock":true', answerer.seen[0][1])

    def test_can_do_without_the_lock(self):
        locks = []
        answerer = self.answer(
            lambda request, name: locks.append(is_locked(os.path.join(self.root, "requests", name))) or {}
        )
        self.client().consume_next("q", wait_ms=5, wait_lock=False)
        self.assertEqual(locks, [False])
        self.assertNotIn(b"waitLock", answerer.seen[0][1])

    def test_does_not_outlast_the_timeout(self):
        seen = []
        self.answer(lambda request, name: seen.append(request) or {"message": None})
        client = self.client()
        client.consume_next("q", wait_ms=60000, timeout=20)
        client.consume_next("q", wait_ms=60000)
        self.assertEqual([request["payload"]["waitMs"] for request in seen], [18000, 60000])
        spans = [request["deadlineMs"] - request["timestampMs"] for request in seen]
        self.assertEqual(spans, [20000, 60000 + PATIENCE_S * 1000])

    def test_is_withdrawn_when_its_caller_asks_for_it(self):
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.02)
        client = self.client()
        with self.assertRaises(RequestWithdrawn) as caught:
            client.send(client.prepare("health"), give_up=lambda: bool(self.requests()))
        self.assertEqual(self.requests(), [])
        self.assertEqual(caught.exception.request.client_id, client.client_id)

    def test_that_is_answered_just_when_it_is_withdrawn_has_its_answer(self):
        self.patch(_mailbox_exchange, CHECK_EVERY_S=0.02)
        client = self.client()

        def answer_then_give_up():
            write_response(self.root, {"clientId": client.client_id, "requestId": "r"}, {"just": "now"})
            return True

        request = client.prepare("health", request_id="r")
        self.assertEqual(client.send(request, give_up=answer_then_give_up), {"just": "now"})

    def test_that_is_given_up_unlocks_and_withdraws(self):
        self.hold_daemon_lock()
        with self.client() as client:
            with self.assertRaises(RequestTimeout):
                client.consume_next("q", wait_ms=1000, timeout=0.02)
        self.assertEqual((self.requests(), descriptors(self.root)), ([], set()))

    def test_that_is_interrupted_unlocks_and_withdraws(self):
        def interrupt(number, frame):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        with self.client() as client:
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                client.consume_next("q", wait_ms=20000)
        self.assertEqual((self.requests(), descriptors(self.root)), ([], set()))

    def test_bears_a_storm_of_signals(self):
        count = []
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: count.append(1)))
        for polling in (False, True):
            del count[:]
            answerer = self.answer(lambda request, name: wait_until(lambda: len(count) > 50, "signals") and {})
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            try:
                self.assertIsNone(self.client(polling=polling).consume_next("q", wait_ms=20000))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            answerer.stop()

    def test_does_not_leak_its_descriptors_to_programs_started_meanwhile(self):
        flags = []

        def reply(request, name):
            for fd, _ in sorted(descriptors(self.root)):
                flags.append(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)
            return {}

        self.answer(reply)
        self.client().consume_next("q", wait_ms=5)
        self.assertEqual(flags, [fcntl.FD_CLOEXEC] * 2)


class ManyThreads(MailboxTest):
    def test_share_a_client_and_each_gets_its_own_answers(self):
        self.answer()
        client = self.client()
        wrong = []

        def work(number):
            for turn in range(25):
                payload = {"number": number, "turn": turn}
                if client.call("health", payload)["echo"]["payload"] != payload:
                    wrong.append(payload)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(wrong, [])
        self.assertTrue(1 <= len(client._transport._idle_watches.get()) <= 8)


class ThreadsThatAskAtTheSameTime(MailboxTest):
    """Each gets there before another is done, as they do on a loaded machine."""

    def ask(self, question, threads=2):
        answers = []
        asking = [threading.Thread(target=lambda: answers.append(question())) for _ in range(threads)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(PATIENCE_S)
        self.assertEqual(len(answers), threads)
        return answers

    def together(self, make, threads=2):
        """``make``, which returns once all the threads are in it."""
        inside, all_inside = [], threading.Event()

        def wait_and_make():
            inside.append(None)
            if len(inside) == threads:
                all_inside.set()
            all_inside.wait(PATIENCE_S)
            return make()

        return wait_and_make

    def test_get_the_same_client_id(self):
        client = self.client()
        client._generated_id = ProcessLocal(self.together(client._generated_id._create))
        first, second = self.ask(lambda: client.client_id)
        self.assertEqual(first, second)
        self.assertEqual(client.client_id, first)

    def test_get_the_same_value_of_their_process(self):
        value = ProcessLocal(self.together(object, 5))
        answers = self.ask(value.get, 5)
        self.assertEqual([one is value.get() for one in answers], [True] * 5)
        self.assertEqual(value.pop_inherited(), [])

    def test_take_what_their_parents_left_only_once(self):
        value = ProcessLocal(object)
        left = value._values[-1] = object()
        taken = self.ask(value.pop_inherited)
        self.assertEqual(sorted(taken, key=len), [[], [left]])


class AForkedChild(MailboxTest):
    def fork(self, work):
        """Run ``work()`` in a child, and return its exit status: 0 when it returned."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions warn of forks beside threads: it is what is tested
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException as error:
                os.write(2, repr(error).encode("utf-8") + b"\n")
            finally:
                os._exit(status)
        return lambda: os.waitpid(pid, 0)[1]

    def test_is_a_client_of_its_own_and_does_not_disturb_its_parent(self):
        self.answer()
        client = self.client()
        client.health()
        parent_id = client.client_id

        def work():
            with client:
                assert client.health()["echo"]["clientId"] == client.client_id != parent_id

        wait = self.fork(work)
        for _ in range(50):
            client.health()
        self.assertEqual(wait(), 0)
        self.assertEqual(client.health()["echo"]["clientId"], parent_id)
        self.assertEqual(os.listdir(os.path.join(self.root, "responses")), [parent_id])

    def test_shares_an_id_that_was_given(self):
        self.answer()
        client = self.client(client_id="me")
        client.health()
        wait = self.fork(lambda: [client.health() for _ in range(20)])
        for _ in range(20):
            self.assertEqual(client.health()["echo"]["clientId"], "me")
        self.assertEqual(wait(), 0)

    def test_does_not_hold_the_long_poll_of_its_parent(self):
        self.hold_daemon_lock()
        client = self.client()
        thread = threading.Thread(target=self.poll_in_vain, args=(client,))
        thread.start()
        name = wait_until(lambda: [name for name in self.requests() if name.endswith(".json")], "the poll waits")[0]
        path = os.path.join(self.root, "requests", name)
        self.assertTrue(is_locked(path))
        kept = path + ".kept"
        os.link(path, kept)
        ready_read, ready_write = os.pipe()
        stop_read, stop_write = os.pipe()

        def work():
            try:
                client.health(timeout=0)  # before Python 3.7 the lock is let go at the child's first call
            except (DaemonNotRunning, RequestTimeout):
                pass
            os.write(ready_write, b"x")
            os.read(stop_read, 1)

        wait = self.fork(work)
        os.read(ready_read, 1)
        thread.join(PATIENCE_S)
        self.assertFalse(is_locked(kept))
        os.write(stop_write, b"x")
        self.assertEqual(wait(), 0)
        for fd in (ready_read, ready_write, stop_read, stop_write):
            os.close(fd)

    def poll_in_vain(self, client):
        try:
            client.consume_next("q", wait_ms=20000, timeout=2)
        except RequestTimeout:
            pass

    def test_that_closed_all_descriptors_does_no_harm(self):
        self.answer()
        client = self.client()
        client.health()

        def work():
            os.closerange(3, 256)
            reused = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            client.health()
            for fd in reused:
                os.fstat(fd)

        self.assertEqual(self.fork(work)(), 0)


if __name__ == "__main__":
    unittest.main()
