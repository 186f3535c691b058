# -*- coding: utf-8 -*-
"""A mailbox in a fresh directory, and a thread that answers its requests as a test wants."""

import fcntl
import json
import os
import shutil
import tempfile
import threading
import time
import unittest

from postroom_client import Client, _mailbox

PATIENCE_S = 60


def wait_until(condition, what):
    """Wait until ``condition()`` is true; returns what it returned."""
    deadline = time.time() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.time() > deadline:
            raise AssertionError("waited in vain until " + what)
        time.sleep(0.001)


class MailboxTest(unittest.TestCase):
    """``self.root`` is an empty mailbox; everything is removed afterwards."""

    def setUp(self):
        self.parent = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.parent, True)
        self.root = os.path.join(self.parent, "ipc")
        self.make_mailbox()

    def make_mailbox(self):
        for name in ("requests", "responses", "dead"):
            os.makedirs(os.path.join(self.root, name))

    def client(self, **options):
        options.setdefault("timeout", PATIENCE_S)
        options.setdefault("transport", "mailbox")
        client = Client(self.root, **options)
        self.addCleanup(client.close)
        return client

    def answer(self, reply=None):
        """Answer requests from now on: ``reply(request, name)`` gives data, a whole response, bytes, or None."""
        answerer = Answerer(self.root, reply or (lambda request, name: {"echo": request}))
        answerer.start()
        self.addCleanup(answerer.stop)
        return answerer

    def hold_daemon_lock(self):
        """Look like a running daemon."""
        lock = open(os.path.join(self.root, "daemon.lock"), "w")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)

    def forbid_boxes(self):
        """Be a user who may not make a response directory here."""
        os.chmod(os.path.join(self.root, "responses"), 0o555)
        if os.geteuid() == 0:  # whom no mode stops
            os.chmod(self.parent, 0o755)
            self.patch(_mailbox, make_directory=_make_directory_as_another)

    def requests(self):
        return sorted(os.listdir(os.path.join(self.root, "requests")))

    def patch(self, module, **values):
        for name, value in values.items():
            self.addCleanup(setattr, module, name, getattr(module, name))
            setattr(module, name, value)


def _make_directory_as_another(path, mode):
    os.seteuid(12345)
    try:
        os.mkdir(path, mode)
    finally:
        os.seteuid(0)


class Answerer(threading.Thread):
    """Takes requests as a daemon does: reads, answers by rename, unlinks."""

    def __init__(self, root, reply):
        threading.Thread.__init__(self)
        self.daemon = True
        self.root = root
        self.reply = reply
        self.seen = []
        self.failure = None
        self._stopping = threading.Event()

    def run(self):
        try:
            while not self._stopping.is_set():
                if not self._answer_waiting():
                    time.sleep(0.0005)
        except Exception as error:
            self.failure = error
            raise

    def _answer_waiting(self):
        directory = os.path.join(self.root, "requests")
        names = [name for name in sorted(os.listdir(directory)) if name.endswith(".json")]
        for name in names:
            path = os.path.join(directory, name)
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except (IOError, OSError):
                continue  # its client gave up
            request = json.loads(data.decode("utf-8"))
            self.seen.append((name, data))
            response = self.reply(request, name)
            if response is not None:
                write_response(self.root, request, response)
            try:
                os.unlink(path)
            except OSError:
                pass
        return names

    def stop(self):
        self._stopping.set()
        self.join(PATIENCE_S)
        if self.failure:
            raise AssertionError("the answering thread failed: %r" % (self.failure,))


def write_response(root, request, response):
    """Put a response: bytes as they are, a whole response, or the data of one."""
    box = os.path.join(root, "responses", str(request["clientId"]))
    if not isinstance(response, bytes):
        if "ok" not in response:
            response = {"ok": True, "data": response}
        response = json.dumps(dict({"requestId": request["requestId"]}, **response)).encode("utf-8")
    path = os.path.join(box, str(request["requestId"]) + ".json")
    with open(path + ".tmp", "wb") as file:
        file.write(response)
    os.rename(path + ".tmp", path)
