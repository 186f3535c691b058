# -*- coding: utf-8 -*-
"""What a client asks of its transport, shown with one that is no mailbox."""

import json
import unittest

from postroom_client import Client, RequestTimeout, RequestWithdrawn, _transport


class Script(_transport.Transport, _transport.Exchange):
    """A transport and its one exchange: waits and cancels return ``answers``; ``calls`` are the methods called."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []
        self.request = None

    def begin(self, request):
        self.request = request
        return self

    def submit(self, deadline):
        self.calls.append("submit")

    def wait(self, deadline):
        self.calls.append("wait")
        return self.next_answer()

    def cancel(self, grace_s):
        self.calls.append("cancel %g" % grace_s)
        return self.next_answer()

    def explain(self, timeout_s):
        return RequestTimeout("no answer", self.request)

    def close(self, withdraw):
        self.calls.append("close and withdraw" if withdraw else "close")

    def next_answer(self):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            return None
        return json.dumps({"requestId": self.request.request_id, "ok": True, "data": answer}).encode("utf-8"), None


class ATransport(unittest.TestCase):
    def send(self, script, **options):
        client = Client("nowhere")
        client._transport = script
        return client.send(client.prepare("health"), **options)

    def test_is_all_that_a_client_needs(self):
        script = Script(None, None, {"status": "ok"})
        self.assertEqual(self.send(script), {"status": "ok"})
        self.assertEqual(script.calls, ["submit", "wait", "wait", "wait", "close"])

    def test_withdraws_a_request_without_an_answer(self):
        script = Script(None, None)
        self.assertRaises(RequestTimeout, self.send, script, timeout=0)
        self.assertEqual(script.calls, ["submit", "wait", "cancel 0", "close and withdraw"])

    def test_returns_an_answer_that_comes_as_the_request_is_withdrawn(self):
        script = Script(None, {"just": "now"})
        self.assertEqual(self.send(script, timeout=0), {"just": "now"})
        self.assertEqual(script.calls, ["submit", "wait", "cancel 0", "close"])

    def test_leaves_a_request_that_is_to_be_kept(self):
        script = Script(None)
        self.assertRaises(RequestTimeout, self.send, script, timeout=0, keep=True)
        self.assertEqual(script.calls, ["submit", "wait", "close"])

    def test_gives_up_when_its_caller_does(self):
        script = Script(None, None)
        self.assertRaises(RequestWithdrawn, self.send, script, give_up=lambda: True)
        self.assertEqual(script.calls, ["submit", "wait", "cancel 0.2", "close and withdraw"])

    def test_is_closed_whatever_happens(self):
        script = Script(KeyboardInterrupt())
        self.assertRaises(KeyboardInterrupt, self.send, script)
        self.assertEqual(script.calls, ["submit", "wait", "close and withdraw"])


if __name__ == "__main__":
    unittest.main()
