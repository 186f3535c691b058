# -*- coding: utf-8 -*-
"""Requests to bytes and bytes to data, without a file."""

import io
import json
import os
import pickle
import sys
import unittest

from postroom_client import (
    ERRORS_BY_CODE,
    BadResponse,
    Binary,
    Delivery,
    InvalidArgument,
    LeaseExpired,
    PostroomError,
    RequestTimeout,
    ServerError,
    _codec,
    _protocol,
)

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "vectors", "v1")
PY2 = sys.version_info[0] == 2


def vectors(name):
    with io.open(os.path.join(VECTORS, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def bytes_of(source):
    if "hex" in source:
        return bytes(bytearray.fromhex(source["hex"]))
    parts = source.get("parts", [source])
    return b"".join(part["text"].encode("utf-8") * part.get("times", 1) for part in parts)


def encoded(message):
    payload = _codec.encode_payload("publish", {"queue": "q", "message": message})
    return _codec.encode_request("r1", "c1", "publish", 1, 2, payload)[0]


def round_trip(message):
    return json.loads(encoded(message).decode("utf-8"))["payload"]["message"]


class ARequest(unittest.TestCase):
    def test_has_the_same_bytes_on_every_interpreter(self):
        options = {"timestamp": 7, "priority": -1, "message": u"h\xe9 \u2028 \U0001f600 \"\\\n", "queue": "q"}
        payload = _codec.encode_payload("publish", options)
        data = _codec.encode_request("r1", "c1", "publish", 1, 2, payload)[0]
        self.assertEqual(
            data,
            u'{"requestId":"r1","clientId":"c1","command":"publish","timestampMs":1,"deadlineMs":2,"payload":'
            u'{"queue":"q","message":"h\xe9 \u2028 \U0001f600 \\"\\\\\\n","priority":-1,"timestamp":7}}'
            u"".encode("utf-8"),
        )

    def test_keeps_json_values_equal(self):
        value = {
            u"a": [1, -(2**63), 2**64 - 1, 0.1, 1e300, True, False, None],
            u"\u00e9": {u"": u"\x00\x7f\uffff"},
            u"empty": [{}, [], u""],
        }
        self.assertEqual(round_trip(value), value)
        self.assertIs(round_trip(True), True)
        self.assertIsNone(round_trip(None))

    def test_takes_tuples_as_arrays(self):
        self.assertEqual(round_trip((1, (2,))), [1, [2]])

    def test_refuses_what_json_cannot_hold_and_names_the_place(self):
        deep = value = []
        for _ in range(127):
            value.append([])
            value = value[0]
        circular = []
        circular.append(circular)
        for message, words in (
            ({u"a": [1, float("nan")]}, "message.a[1]"),
            ({u"a": float("-inf")}, "message.a"),
            ([2**64], "message[0]: an integer must fit into 64 bits"),
            ([-(2**63) - 1], "64 bits"),
            ({1: 2}, "message: a key must be text, not 1"),
            ([object()], "message[0]: a object cannot be sent"),
            ([set()], "message[0]"),
            (deep, "nested deeper"),
            (circular, "nested deeper"),
            (u"\ud800", "half a surrogate pair"),
            ({u"a\udfff": 1}, "half a surrogate pair"),
            (bytearray(b"x"), "wrap bytes in Binary"),
        ):
            with self.assertRaises(InvalidArgument) as caught:
                encoded(message)
            self.assertIn(words, str(caught.exception))

    def test_reaches_the_depth_that_the_daemon_reads(self):
        message = value = []
        for _ in range(_protocol.JSON_DEPTH_LIMIT - 3):
            value.append([])
            value = value[0]
        self.assertEqual(round_trip(message), message)
        with self.assertRaises(InvalidArgument):
            encoded([message])

    def test_keeps_text_and_bytes_apart(self):
        if PY2:
            self.assertEqual(round_trip(u"h\xe9".encode("utf-8")), u"h\xe9")
            self.assertEqual(round_trip({b"k": [b"v"]}), {u"k": [u"v"]})
            with self.assertRaises(InvalidArgument) as caught:
                encoded({b"k": b"\xff"})
            with self.assertRaises(InvalidArgument):
                encoded({u"\xe9": 1, u"\xe9".encode("utf-8"): 2})
        else:
            with self.assertRaises(InvalidArgument) as caught:
                encoded({"k": b"text"})
        self.assertIn("message.k", str(caught.exception))
        self.assertIn("Binary", str(caught.exception))

    def test_sends_binary_with_its_type_behind_the_header_or_as_base64(self):
        payload = _codec.encode_payload("publish", {"queue": "q", "message": Binary(b"\x00\xff", "image/png")})
        header, body = _codec.encode_request("r1", "c1", "publish", 1, 2, payload, idempotency_key="k1")
        self.assertEqual(body, b"\x00\xff")
        self.assertEqual(
            json.loads(header.decode("utf-8"))["payload"], {"queue": "q", "bodyBytes": 2, "contentType": "image/png"}
        )
        request = json.loads(_codec.join_body(header, body).decode("utf-8"))
        self.assertEqual(
            request["payload"], {"queue": "q", "message": "AP8=", "encoding": "base64", "contentType": "image/png"}
        )
        self.assertEqual(request["idempotencyKey"], "k1")
        payload = _codec.encode_payload(
            "publish", {"queue": "q", "message": Binary(b"", "a/b"), "content_type": "c/d"}
        )
        self.assertEqual(payload["contentType"], "c/d")
        with self.assertRaises(InvalidArgument):
            Binary(u"text")

    def test_needs_valid_ids(self):
        for bad in (u"", u".", u".a", u"a/b", u"a\n", u"\x85", u"a\u2028", u"\xe9" * 65, "a" * 129, None, 7):
            with self.assertRaises(InvalidArgument):
                _codec.encode_request("r", bad, "health", 1, 2, {})
            with self.assertRaises(InvalidArgument):
                _codec.encode_request(bad, "c", "health", 1, 2, {})

    def test_names_an_option_that_its_command_does_not_have(self):
        with self.assertRaises(InvalidArgument) as caught:
            _codec.encode_payload("ack", {"message_key": "k", "lease": "x"})
        known = "message_key, lease_id, consumer_id, queue, any_holder"
        self.assertEqual(str(caught.exception), "ack has no option lease; it has: " + known)
        with self.assertRaises(InvalidArgument) as caught:
            _codec.encode_payload("ack", {"message_key": None})
        self.assertEqual(str(caught.exception), "ack needs message_key or lease_id")

    def test_names_an_argument_of_the_wrong_type(self):
        for command, options, text in (
            ("publish", {"queue": 5}, "queue must be a string, not 5"),
            ("publish", {"queue": "q", "priority": "1"}, "priority must be an integer, not '1'"),
            ("publish", {"queue": "q", "priority": True}, "priority must be an integer, not True"),
            ("publish", {"queue": "q", "delay_ms": 1.5}, "delay_ms must be an integer, not 1.5"),
            ("publish", {"queue": "q", "attributes": []}, "attributes must be a string or a dict, not []"),
            ("publish", {"queue": "q", "version": {}}, "version must be a string or a number, not {}"),
            ("consume_next", {"queue": "q", "visibility_timeout_sec": "9"}, "visibility_timeout_sec must be a number"),
            ("nack", {"message_key": "k", "requeue": 1}, "requeue must be True or False, not 1"),
            ("set_policy", {"queue": "q", "policy": "{}"}, "policy must be a dict, not '{}'"),
        ):
            with self.assertRaises(InvalidArgument) as caught:
                _codec.encode_payload(command, dict({"message": None} if command == "publish" else {}, **options))
            self.assertIn(text, str(caught.exception))

    def test_takes_arguments_of_every_right_type(self):
        options = {"queue": u"q", "message": None, "attributes": {}, "version": 1.5, "priority": 2**62, "type": "t"}
        self.assertEqual(_codec.encode_payload("publish", options), options)

    def test_an_error_with_foreign_letters_can_be_printed(self):
        with self.assertRaises(InvalidArgument) as caught:
            encoded({u"\u20ac": float("nan")})
        text = str(caught.exception)
        self.assertIn(u"message.\u20ac", text.decode("utf-8") if PY2 else text)
        text = str(ServerError("ERR_X", u"\u20ac"))
        self.assertEqual(text.decode("utf-8") if PY2 else text, u"ERR_X: \u20ac")


class AResponse(unittest.TestCase):
    def test_with_a_code_of_the_protocol_raises_its_class(self):
        for code, kind in ERRORS_BY_CODE.items():
            response = {"requestId": "r", "ok": False, "error": {"code": code, "message": "m"}}
            with self.assertRaises(kind) as caught:
                _codec.decode_response(json.dumps(response).encode("ascii"), "r")
            self.assertIs(type(caught.exception), kind)
            self.assertEqual((caught.exception.code, caught.exception.message), (code, "m"))

    def test_with_an_unknown_code_raises_the_base(self):
        response = b'{"requestId":"r","ok":false,"error":{"code":"ERR_OF_TOMORROW","message":"m","more":1},"new":2}'
        with self.assertRaises(ServerError) as caught:
            _codec.decode_response(response, "r")
        self.assertIs(type(caught.exception), ServerError)
        self.assertEqual(caught.exception.code, "ERR_OF_TOMORROW")

    def test_that_is_not_a_response_is_recognised(self):
        for data in (
            b"",
            b"{",
            b"[]",
            b"\xff",
            b"[" * 100000,
            b'{"requestId":"other","ok":true,"data":{}}',
            b'{"requestId":"r","ok":true}',
            b'{"requestId":"r","ok":true,"data":[]}',
            b'{"requestId":"r","ok":1,"data":{}}',
            b'{"requestId":"r","ok":false}',
            b'{"requestId":"r","ok":false,"error":{"code":7}}',
        ):
            with self.assertRaises(BadResponse):
                _codec.decode_response(data, "r")

    def test_errors_survive_pickling(self):
        error = pickle.loads(pickle.dumps(LeaseExpired("ERR_LEASE_EXPIRED", "over")))
        self.assertEqual((type(error), error.code, error.message), (LeaseExpired, "ERR_LEASE_EXPIRED", "over"))
        self.assertEqual(str(pickle.loads(pickle.dumps(RequestTimeout("late")))), "late")
        self.assertTrue(issubclass(LeaseExpired, PostroomError))


class ADelivery(unittest.TestCase):
    def test_has_the_fields_of_message_and_lease(self):
        message = {"messageKey": "k", "payload": {"a": 1}, "attributes": {}, "attempt": 2, "createdAt": 5, "type": "t"}
        lease = {"leaseId": "l", "leaseUntil": 9, "consumerId": "me"}
        delivery = Delivery({"message": message, "lease": lease, "engineNowMs": 3})
        self.assertEqual((delivery.message_key, delivery.lease_id, delivery.payload), ("k", "l", {"a": 1}))
        self.assertEqual((delivery.attempt, delivery.created_at, delivery.type), (2, 5, "t"))
        self.assertEqual((delivery.lease_until, delivery.consumer_id, delivery.engine_now_ms), (9, "me", 3))
        self.assertIsNone(delivery.trace_id)
        self.assertEqual((delivery.message, delivery.lease), (message, lease))

    def test_of_bytes_is_binary(self):
        message = {"messageKey": "k", "payload": "AP8=", "encoding": "base64", "contentType": "image/png"}
        self.assertEqual(Delivery({"message": message}).payload, Binary(b"\x00\xff", "image/png"))
        self.assertNotEqual(Binary(b"a"), Binary(b"a", "image/png"))
        with self.assertRaises(BadResponse):
            Delivery({"message": dict(message, payload="A")})


class TheGoldenVectors(unittest.TestCase):
    def test_every_valid_request_is_written_with_equal_values(self):
        for name in ("envelope-valid", "commands-valid", "cpp-requests", "bodies", "queue-names"):
            for vector in vectors(name):
                expect = vector["expect"]
                data, _ = _codec.encode_request(
                    expect["requestId"], expect["clientId"], expect["command"], 1, 2, expect["payload"]
                )
                self.assertEqual(json.loads(data.decode("utf-8"))["payload"], expect["payload"], vector["name"])

    def test_every_response_is_read_or_refused(self):
        for vector in vectors("responses"):
            data, expect = bytes_of(vector["response"]), vector["expect"]
            try:
                self.assertEqual(_codec.decode_response(data, vector["requestId"]), expect["data"])
            except ServerError as error:
                self.assertEqual((error.code, error.message), (expect["error"]["code"], expect["error"]["message"]))
                self.assertEqual(error.data, expect["error"].get("data"))
            except BadResponse:
                self.assertIn("unreadable", expect, vector["name"])


if __name__ == "__main__":
    unittest.main()
