# -*- coding: utf-8 -*-
"""The command ``postroom``: exit statuses, both kinds of output, where a message comes from."""

import io
import json
import os
import re
import subprocess
import sys
import unittest
from shlex import split as split_words

from postroom_client import __version__, cli
from postroom_client.cli import answers as cli_answers
from postroom_client.cli import arguments as cli_arguments
from postroom_client.cli import names as cli_names
from postroom_client.cli import output as cli_output
from postroom_client.cli import paging as cli_paging
from postroom_client.cli import payload as cli_payload
from postroom_client.cli import table as cli_table
from support import MailboxTest

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(cli.__file__))))
MESSAGE = {"messageKey": "msg:q:1", "queue": "q", "payload": u"a\x1b[31m\u20ac", "attempt": 1, "attributes": "{}"}
#: Commands that follow one another in one interpreter, whose start is most of the time of each.
EACH = """
import json, sys
from postroom_client import cli
for arguments in json.loads(sys.argv[1]):
    if sys.version_info[0] == 2:
        arguments = [text.encode("utf-8") for text in arguments]
    try:
        status = cli.main(arguments)
    except SystemExit as end:
        status = end.code
    print("status %s" % (status or 0))
"""
LEASED = {"message": MESSAGE, "lease": {"leaseId": "l", "leaseUntil": 1, "leaseUntilEngineMs": 5000}, "engineNowMs": 0}


class CommandTest(MailboxTest):
    def run_command(self, *arguments, **options):
        """Run ``postroom``; returns its exit status, standard output and standard error as text."""
        return self.run_python(["-m", "postroom_client"] + list(arguments), options)

    def run_python(self, arguments, options):
        environment = dict(os.environ, PYTHONPATH=PACKAGE, **options.get("environment", {}))
        if "--ipc-root" not in arguments and "POSTROOM_IPC_ROOT" not in environment:
            environment["POSTROOM_IPC_ROOT"] = self.root
        process = subprocess.Popen(
            [sys.executable, "-W", "error"] + arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.parent,
            env=environment,
        )
        output, errors = process.communicate(options.get("stdin", b""))
        return process.returncode, output.decode("utf-8"), errors.decode("utf-8")

    def run_json(self, *arguments, **options):
        """Run ``postroom --json``; returns its exit status and the one object that it prints."""
        status, output, errors = self.run_command("--json", *arguments, **options)
        self.assertEqual((output.count("\n"), output[-1:], errors), (1, "\n", ""))
        return status, json.loads(output)

    def run_each(self, many, **options):
        """Run ``postroom`` with each of these arguments; the exit status and the standard output of each."""
        status, output, errors = self.run_python(["-c", EACH, json.dumps([list(one) for one in many])], options)
        self.assertEqual(status, 0, errors)
        parts = re.split(r"^status (\d+)\n", output, flags=re.MULTILINE)
        self.assertEqual((len(parts), parts[-1]), (2 * len(many) + 1, ""))
        return [(int(status), output) for output, status in zip(parts[:-1:2], parts[1::2])], errors

    def run_each_json(self, many):
        """Run ``postroom --json`` with each of these arguments; the exit status and the one object of each."""
        results, errors = self.run_each([["--json"] + list(one) for one in many])
        for _, output in results:
            self.assertEqual((output.count("\n"), output[-1:], errors), (1, "\n", ""))
        return [(status, json.loads(output)) for status, output in results]

    def serve(self, reply=None):
        self.hold_daemon_lock()
        return self.answer(reply)

    def published(self, *arguments, **options):
        status, result = self.run_json("publish", "--queue", "q", *arguments, **options)
        self.assertEqual(status, 0, result)
        return result["data"]["echo"]["payload"]


class AMessage(CommandTest):
    def setUp(self):
        CommandTest.setUp(self)
        self.serve()

    def test_is_the_argument_byte_for_byte(self):
        text = u'{"temp": 36.5, "\u20ac": 1}'
        argument = text.encode("utf-8") if sys.version_info[0] == 2 else text
        environment = {"LC_ALL": "C.UTF-8"}
        self.assertEqual(self.published("--message", argument, environment=environment)["message"], text)

    def test_comes_from_a_file(self):
        with io.open(os.path.join(self.parent, "body"), "w", encoding="utf-8") as file:
            file.write(u"first\nsecond\n")
        self.assertEqual(self.published("--message", "@body")["message"], "first\nsecond\n")
        self.assertEqual(self.published("--message", "@@body")["message"], "@body")

    def test_comes_from_standard_input(self):
        self.assertEqual(self.published("--message", "-", stdin=b"a\n")["message"], "a\n")
        self.assertEqual(self.published(stdin=b"b\n")["message"], "b\n")
        self.assertEqual(self.published("--message", "", stdin=b"c")["message"], "")

    def test_is_a_json_value_on_demand(self):
        payload = self.published("--message", '{"a": [1]}', "--attributes", '{"b": 2}', "--json-body")
        self.assertEqual((payload["message"], payload["attributes"]), ({"a": [1]}, {"b": 2}))

    def test_is_binary_on_demand(self):
        payload = self.published("--binary", "--content-type", "image/png", stdin=b"\x00\xff")
        self.assertEqual(
            payload, {"queue": "q", "message": "AP8=", "encoding": "base64", "contentType": "image/png"}
        )

    def test_has_all_fields(self):
        self.assertEqual(
            self.published(
                *'--message m --attributes {"a":1} --priority -3 --delay 4 --target c --type t --msg-version 2 '
                "--trace-id i --dedup-key d --timestamp 1.5 --content-type x/y".split()
            ),
            {
                "queue": "q",
                "message": "m",
                "attributes": '{"a":1}',
                "priority": -3,
                "delayMs": 4,
                "targetConsumerId": "c",
                "type": "t",
                "version": 2,
                "traceId": "i",
                "deduplicationKey": "d",
                "timestamp": 1.5,
                "contentType": "x/y",
            },
        )

    def test_that_cannot_be_sent_is_wrong_usage(self):
        wrong = (
            ((), "--message is missing and standard input is empty"),
            (("--message", "@nowhere"), "cannot read nowhere: No such file or directory"),
            (("--message", "{", "--json-body"), "--message is not JSON"),
            (("--message", "hello", "--json-body"), """(a string needs quotes: '"hello"'; or leave out"""),
            (("--message", "m", "--attributes", "a=b"), "--attributes is not JSON"),
            (("--message", "m", "--attributes", "[1]"), "--attributes is not a JSON object (example:"),
            (("--message", "[NaN]", "--json-body"), "has no JSON form"),
            (("--message", '{"a": 1, "a": 2}', "--json-body"), "occurs twice"),
            (("--message", "m", "--priority", "high"), "--priority"),
            (("--message", "m", "--client-id", "../x"), "client id"),
            (("--message", "m", "--timeout", "0"), "--timeout must be at least 1 ms"),
        )
        results = self.run_each_json([("publish", "--queue", "q") + arguments for arguments, _ in wrong])
        results.append(self.run_json("publish", "--queue", "q", stdin=b"\xff"))
        for (status, result), words in zip(results, [words for _, words in wrong] + ["is not UTF-8 (byte 0)"]):
            self.assertEqual((status, result["ok"], result["error"]["code"]), (2, False, "USAGE"))
            self.assertIn(words, result["error"]["message"])


class ExitStatus(CommandTest):
    def test_1_is_an_error_answer_with_advice(self):
        self.serve(lambda request, name: {"ok": False, "error": {"code": "ERR_PAUSED", "message": "q is paused"}})
        status, output, errors = self.run_command("publish", "--queue", "q", "--message", "m")
        self.assertEqual((status, output), (1, ""))
        self.assertEqual(errors, "postroom: ERR_PAUSED: q is paused\n  Try again later, or resume the queue.\n")
        status, result = self.run_json("publish", "--queue", "q", "--message", "m")
        self.assertEqual(status, 1)
        error = {"code": "ERR_PAUSED", "message": "q is paused"}
        self.assertEqual(result, {"ok": False, "command": "publish", "error": error})

    def test_1_is_health_that_is_not_ok(self):
        checks = {"journal": {"ok": False, "error": "Input/output error"}, "store": {"ok": True}}
        checks["disk"] = {"ok": False, "freeBytes": 1500000, "reserveBytes": 33554432}
        self.serve(lambda request, name: {"status": "degraded", "checks": checks})
        status, output, errors = self.run_command("health")
        self.assertEqual((status, errors), (1, ""))
        head = (
            "status   degraded\n"
            "disk     not ok: 1.5 MB free, less than the 33.6 MB that must stay free: "
            "publishes are refused\n"
            "journal  not ok: Input/output error\n\n"
        )
        self.assertTrue(output.startswith(head), output)
        status, result = self.run_json("health")
        self.assertEqual((status, result["ok"], result["data"]["checks"]), (1, True, checks))

    def test_1_is_a_response_directory_that_cannot_be_made(self):
        self.hold_daemon_lock()
        with open(os.path.join(self.parent, "errors"), "w") as errors:
            self.patch(sys, stderr=errors)
            self.forbid_boxes()
            status = cli.main(["--ipc-root", self.root, "--client-id", "me", "health"])
        with open(os.path.join(self.parent, "errors")) as errors:
            text = errors.read()
        self.assertEqual(status, 1)
        self.assertIn("/responses/me: Permission denied; ask the device's owner to create it for this user", text)

    def test_2_is_wrong_usage(self):
        wrong = [[], ["policy"], ["publish"], ["nonsense"], ["health", "--limit", "3"], ["ack"]]
        for status, result in self.run_each_json(wrong):
            self.assertEqual((status, result["error"]["code"]), (2, "USAGE"))
        results, errors = self.run_each(wrong)
        self.assertEqual(results, [(2, "")] * len(wrong))
        reported = [line for line in errors.splitlines() if not line.startswith("  ")]
        self.assertEqual([line[:10] for line in reported], ["postroom: "] * len(wrong), errors)

    def test_2_names_an_unknown_option_before_a_missing_one(self):
        self.assert_reported(
            (["publish", "--queue", "q", "--prio-x", "1"], "unrecognized arguments: --prio-x 1 (see postroom pub"),
            (["publish", "--topic", "q"], "unrecognized arguments: --topic q (see postroom publish --help"),
            (["status", "--limit", "1"], "unrecognized arguments: --limit 1 (see postroom status --help"),
            (["policy", "get", "--key", "k"], "unrecognized arguments: --key k (see postroom policy get --help"),
            (["publish"], "--queue"),
        )

    def test_2_names_the_command_that_may_have_been_meant(self):
        self.assert_reported(
            (["publsh", "--queue", "q"], "there is no command 'publsh': did you mean publish? (see postroom --help"),
            (["wrok"], "there is no command 'wrok': did you mean work? (see postroom --help"),
            (["42"], "there is no command '42' (see postroom --help"),
            (["schedule"], "schedule needs list, set or delete (see postroom --help"),
            (["policy"], "policy needs get, set, patterns or set-patterns (see postroom --help"),
        )

    def assert_reported(self, *wrong):
        results = self.run_each_json([arguments for arguments, _ in wrong])
        for (_, result), (_, text) in zip(results, wrong):
            self.assertIn(text, result["error"]["message"])

    def test_2_is_an_item_of_a_batch_without_a_message(self):
        items = '[{"message": 1}, {"mesage": 2}]'
        for word in (["publish-batch"], ["ack-and-publish", "--message-key", "k"]):
            status, result = self.run_json(*(word + ["--messages", items]))
            self.assertEqual((status, result["error"]["message"][:40]), (2, "--messages: item 1 (the first is 0) has "))

    def test_3_is_no_daemon_and_says_so_at_once(self):
        status, result = self.run_json("health", "--timeout", "600000")
        self.assertEqual((status, result["error"]["code"]), (3, "DAEMON_NOT_RUNNING"))
        status, result = self.run_json("health", "--ipc-root", os.path.join(self.parent, "nowhere"))
        self.assertEqual((status, result["error"]["code"]), (3, "DAEMON_NOT_RUNNING"))
        status, result = self.run_json("health", "--wait-daemon", "--timeout", "20")
        self.assertEqual((status, result["error"]["code"]), (3, "DAEMON_NOT_RUNNING"))
        self.assertEqual(self.requests(), [])

    def test_3_is_a_daemon_that_does_not_answer_in_time(self):
        self.hold_daemon_lock()
        status, result = self.run_json("--timeout", "20", "health")
        self.assertEqual((status, result["error"]["code"]), (3, "CLIENT_TIMEOUT"))

    def test_3_says_what_may_have_been_done(self):
        self.hold_daemon_lock()
        for arguments, text in (
            (["health"], "no answer in 0.02 s"),
            (["list-dlq", "--queue", "q"], "no answer in 0.02 s"),
            (["pause", "--queue", "q"], "no answer in 0.02 s: it may have been executed"),
            (
                ["publish", "--queue", "q", "--message", "m"],
                "no answer in 0.02 s: it may have been executed; publishing again may store it twice",
            ),
        ):
            status, output, errors = self.run_command("--timeout", "20", *arguments)
            self.assertEqual((status, output, errors), (3, "", "postroom: " + text + "\n"))

    def test_3_names_the_mailbox_that_was_meant(self):
        errors = self.run_command("--ipc-root", self.parent, "health")[2]
        root = os.path.realpath(self.parent)
        self.assertEqual(errors, "postroom: %s is not a mailbox, but %s/ipc is: did you mean that?\n" % (root, root))
        errors = self.run_command("--ipc-root", "nowhere", "health")[2]
        self.assertIn("/nowhere does not exist; start postroomd, name another --ipc-root", errors)

    def test_4_is_nothing_to_consume(self):
        self.serve(lambda request, name: {"message": None})
        self.assertEqual(self.run_command("consume", "--queue", "q"), (4, "nothing to consume\n", ""))
        status, result = self.run_json("consume", "--queue", "q", "--wait", "5")
        self.assertEqual((status, result), (4, {"ok": True, "command": "consume", "data": {"message": None}}))


class ACommand(CommandTest):
    def test_takes_the_common_options_before_and_after_its_name(self):
        answerer = self.serve()
        options = ["--client-id", "me", "--timeout", "20000", "--json", "--ipc-root", "ipc"]
        self.assertEqual(self.run_command(*(options + ["metrics"]))[0], 0)
        self.assertEqual(self.run_command(*(["metrics"] + options))[0], 0)
        for _, data in answerer.seen:
            request = json.loads(data.decode("utf-8"))
            self.assertEqual((request["clientId"], request["deadlineMs"] - request["timestampMs"]), ("me", 20000))

    def test_has_one_client_id_for_each_user(self):
        answerer = self.serve()
        self.run_command("health")
        self.assertIn('"clientId":"cli-%d"' % os.geteuid(), answerer.seen[0][1].decode("utf-8"))

    def test_speaks_the_protocol(self):
        answerer = self.serve()
        key = ["--message-key", "k", "--lease-id", "l"]
        spoken = (
            (["ack"] + key, "ack", {"messageKey": "k", "leaseId": "l"}),
            (
                ["nack", "--reason", "r", "--requeue"] + key,
                "nack",
                {"messageKey": "k", "leaseId": "l", "reason": "r", "requeue": True},
            ),
            (["release"] + key, "release", {"messageKey": "k", "leaseId": "l"}),
            (
                ["extend", "--visibility", "1.5"] + key,
                "extend_lease",
                {"messageKey": "k", "leaseId": "l", "visibilityTimeoutSec": 1.5},
            ),
            (["status", "--queue", "q"], "status", {"queue": "q"}),
            (["queues", "--limit", "5", "--after", "a"], "list_queues", {"limit": 5, "after": "a"}),
            (
                ["list-dlq", "--queue", "q", "--limit", "50", "--preview-bytes", "9"],
                "list_dlq",
                {"queue": "q", "limit": 50, "previewBytes": 9},
            ),
            (["reprocess", "--message-key", "k"], "reprocess_dlq", {"messageKey": "k"}),
            (["pause", "--queue", "q"], "pause", {"queue": "q"}),
            (["resume", "--queue", "q", "--publish"], "resume", {"queue": "q", "operation": "publish"}),
            (["policy", "get", "--queue", "q"], "get_policy", {"queue": "q"}),
            (["policy", "--queue", "q"], "get_policy", {"queue": "q"}),
            (
                ["policy", "set", "--queue", "q", "--policy", '{"retry": {"limit": 2}}'],
                "set_policy",
                {"queue": "q", "policy": {"retry": {"limit": 2}}},
            ),
            (
                ["consume", "--queue", "q", "--consumer-id", "c", "--wait", "7", "--payload-as", "value"],
                "consume_next",
                {"queue": "q", "consumerId": "c", "waitMs": 7, "waitLock": True, "payloadAs": "value"},
            ),
            (["health"], "health", {}),
            (["metrics"], "metrics", {}),
        )
        self.run_each([arguments for arguments, _, _ in spoken])
        requests = [json.loads(data.decode("utf-8")) for _, data in answerer.seen]
        self.assertEqual(
            [(request["command"], request["payload"]) for request in requests],
            [(command, payload) for _, command, payload in spoken],
        )

    def test_takes_the_words_of_the_clients_of_the_cpp_system(self):
        answerer = self.serve()
        key, queue = ["--message-key", "k", "--lease-id", "l"], ["--queue", "q"]
        leased = {"messageKey": "k", "leaseId": "l"}
        extended = dict(leased, visibilityTimeoutSec=60)
        published = {"queue": "q", "message": "{}", "priority": 5}
        spoken = [
            ([word, "--visibility", "60"] + key, "extend_lease", extended)
            for word in ("extend", "extend-lease", "extendlease")
        ]
        spoken += [(["--timeout", "9000", word] + queue, "list_dlq", {"queue": "q"}) for word in ("listdlq", "dlq")]
        spoken += [
            (["reprocess-dlq", "--message-key", "k"], "reprocess_dlq", {"messageKey": "k"}),
            (queue + ["--message", "{}", "--priority", "5"], "publish", published),
            (["--client-id", "publisher-01", "--message={}", "--priority", "5"] + queue, "publish", published),
            (["nack"] + key + ["--requeue", "true"], "nack", dict(leased, requeue=True)),
            (["nack", "--requeue", "1"] + key, "nack", dict(leased, requeue=True)),
            (["nack", "--requeue", "false"] + key, "nack", dict(leased, requeue=False)),
            (["nack"] + key + ["--requeue"], "nack", dict(leased, requeue=True)),
        ]
        statuses = [status for status, _ in self.run_each([arguments for arguments, _, _ in spoken])[0]]
        self.assertEqual(statuses, [0] * len(spoken))
        requests = [json.loads(data.decode("utf-8")) for _, data in answerer.seen]
        self.assertEqual(
            [(request["command"], request["payload"]) for request in requests],
            [(command, payload) for _, command, payload in spoken],
        )

    def test_help_is_a_word_and_options_without_a_message_publish_nothing(self):
        (whole, ours, publish, pause), _ = self.run_each([["help"], ["--help"], ["help", "publish"], ["publish", "-h"]])
        self.assertEqual((whole, publish), (ours, pause))
        self.assertIn("extend-lease", whole[1])
        self.assertEqual(self.run_command("--queue", "q")[0], 2)
        status, _, errors = self.run_command("nack", "--message-key", "k", "--requeue", "perhaps")
        self.assertEqual(status, 2)
        self.assertIn("must be true or false", errors)

    def test_consume_acknowledges_what_it_printed(self):
        answerer = self.serve(lambda request, name: LEASED if request["command"] == "consume_next" else {})
        status, result = self.run_json("consume", "--queue", "q", "--ack")
        self.assertEqual((status, result["data"]), (0, LEASED))
        request = json.loads(answerer.seen[-1][1].decode("utf-8"))
        self.assertEqual((request["command"], request["payload"]), ("ack", {"messageKey": "msg:q:1", "leaseId": "l"}))

    def test_consume_says_when_it_could_not_acknowledge(self):
        refusal = {"ok": False, "error": {"code": "ERR_LEASE_EXPIRED", "message": "over"}}
        self.serve(lambda request, name: LEASED if request["command"] == "consume_next" else refusal)
        status, output, errors = self.run_command("consume", "--queue", "q", "--ack", "--json")
        self.assertEqual((status, json.loads(output)["data"]), (1, LEASED))
        self.assertIn("not acknowledged, it will be delivered again: ERR_LEASE_EXPIRED: over", errors)

    def test_consume_prints_the_body_alone(self):
        binary = dict(MESSAGE, payload="AP8=", encoding="base64")
        bodies = iter([MESSAGE, binary])
        self.serve(lambda request, name: {"message": next(bodies)})
        self.assertEqual(self.run_command("consume", "--queue", "q", "--raw")[1], MESSAGE["payload"])
        environment = dict(os.environ, PYTHONPATH=PACKAGE, POSTROOM_IPC_ROOT=self.root)
        arguments = [sys.executable, "-m", "postroom_client", "consume", "--queue", "q", "--raw"]
        self.assertEqual(subprocess.check_output(arguments, env=environment), b"\x00\xff")

    def test_has_a_version(self):
        status, output, errors = self.run_command("--version")
        self.assertEqual((status, (output + errors).strip()), (0, "postroom " + __version__))

    def test_explains_its_exit_statuses(self):
        status, output, _ = self.run_command("--help")
        self.assertEqual(status, 0)
        self.assertIn("4  nothing to consume", output)

    def test_explains_itself_on_a_terminal_of_80_columns(self):
        words = [word.split() for word, _, _ in cli_names.SUBCOMMANDS] + [[], ["work"]]
        results, _ = self.run_each([word + ["--help"] for word in words], environment={"COLUMNS": "80"})
        for status, output in results:
            self.assertEqual((status, output[:15]), (0, "usage: postroom"))
            self.assertEqual([line for line in output.splitlines() if len(line) > 80], [])

    def test_to_a_reader_that_has_gone_ends_quietly(self):
        self.serve()
        environment = dict(os.environ, PYTHONPATH=PACKAGE, POSTROOM_IPC_ROOT=self.root)
        process = subprocess.Popen(
            [sys.executable, "-m", "postroom_client", "health"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(), errors), (1, b""))


class TextForPeople(unittest.TestCase):
    def test_shows_control_characters_as_escapes(self):
        text = u"a\x00\x1b[31m\n\t\x7f\x9b\u202e\u2028\ufeff\u20ac"
        self.assertEqual(
            cli_output.escape(text), u"a\\x00\\x1b[31m\\n\\t\\x7f\\x9b\\u202e\\u2028\\ufeff\u20ac"
        )

    def test_aligns_columns(self):
        self.assertEqual(
            cli_output.table([u"queue", u"ready"], [[u"a", u"1"], [u"telemetry", u"1000"]]),
            u"queue      ready\na              1\ntelemetry   1000",
        )

    def test_gives_durations_a_fitting_unit(self):
        lengths = [cli_output.duration(ms) for ms in (0, 999, 1500, 119000, 600000, 7200000, None)]
        self.assertEqual(lengths, [u"0 ms", u"999 ms", u"1.5 s", u"119 s", u"10 min", u"2 h", u"-"])

    def test_shows_a_message(self):
        lines = cli_answers.describe("consume_next", LEASED).split(u"\n")
        self.assertEqual(lines[0], u"queue        q")
        self.assertTrue(lines[3].endswith(u"(in 5 s)"), lines[3])
        self.assertEqual(lines[-1], u"payload      a\x1b[31m\u20ac")

    def test_shows_a_dead_letter_as_a_block(self):
        letter = {"messageKey": "k", "reason": "bad", "reasonCode": "REJECTED", "attempt": 1, "preview": "p"}
        text = cli_answers.describe("list_dlq", {"queue": "a b", "messages": [letter, letter], "next": "7|it's"})
        blocks = text.split(u"\n\n")
        self.assertEqual(blocks[0], blocks[1])
        self.assertEqual(
            blocks[0],
            u"message key  k\ndied         -\nreason       REJECTED: bad\nattempt      1\nconsumer     -\n"
            u"bytes        -\npreview      p",
        )
        self.assertEqual(len(blocks), 2)

    def test_the_command_for_the_next_page_is_the_same_command(self):
        for arguments, following in (
            (["list-dlq", "--queue", "a b"], u"7|it's"),
            (["queues", "--limit", "5"], u"-q"),
            (["--ipc-root", "/var/lib/my box", "--client-id", "me", "inflight"], u"abc"),
            (["browse", "--queue=-q", "--full-bodies", "--filter", '{"text": "it\'s \\u202e"}'], u"-_x"),
        ):
            options = cli_arguments.parse(arguments)
            payload = cli_payload.payload_of(options)
            more = cli_paging.next_page(options, options.word, payload, {"next": following})
            self.assertTrue(more.startswith(u"\nmore: postroom "), more)
            words = split_words(str(more[7:]))
            again = cli_arguments.parse(words[1:])
            self.assertEqual(cli_payload.payload_of(again), dict(payload, after=str(following)))
            for name in ("ipc_root", "client_id"):
                self.assertEqual(getattr(again, name, None), getattr(options, name, None))
        self.assertEqual(cli_paging.next_page(options, "browse", payload, {"next": ""}), u"")

    def test_a_table_fits_a_terminal_and_text_to_be_copied_is_not_cut(self):
        headers = [u"key", u"uid", u"bytes", u"body"]
        rows = [[u"k" * 30, u"-", u"7", u"b" * 90], [u"short", u"-", u"12", u"\uc218\uc9d1" * 20]]
        whole = cli_table.lay_out(headers, rows, None)
        self.assertIn(u"b" * 90, whole)
        for width in (60, 40):
            lines = cli_table.lay_out(headers, rows, width).split(u"\n")
            self.assertEqual([line for line in lines if cli_table.width_of(line) > width], [])
            self.assertNotIn(u"uid", lines[0])
            self.assertTrue(any(line.startswith(u"k" * 30) for line in lines), lines)
            self.assertEqual(len([line for line in lines if line.endswith(u"...")]), 2)

    def test_shows_a_lease_with_its_user_and_its_present_queue(self):
        lease = {"consumerId": "c", "attempt": 1, "leasedAtEngineMs": 1000, "leaseUntilEngineMs": 9000, "uid": 0}
        dead = dict(lease, messageKey="msg:q:2", queue="r", state="dead")
        rows = [dict(lease, messageKey="msg:q:1", queue="q"), dead]
        text = cli_answers.describe("list_inflight", {"messages": rows, "engineNowMs": 5000})
        self.assertEqual(
            text,
            u"message key  queue  consumer  user  attempt  leased  left  state\n"
            u"msg:q:1      q      c         root        1      4s    4s  -\n"
            u"msg:q:2      r      c         root        1      4s    4s  dead",
        )

    def test_a_wide_character_takes_two_columns(self):
        text = cli_output.table([u"queue", u"ready"], [[u"\uc218\uc9d1", u"1"], [u"abcde", u"2"]])
        self.assertEqual(text, u"queue  ready\n\uc218\uc9d1       1\nabcde      2")

    def test_shows_a_status_with_details_that_are_not_zero_beside_each_count(self):
        reply = {
            "queue": "q",
            "metrics": {"ready": 2, "inflight": 1, "delayed": 1, "held": 0, "dlq": 3},
            "oldestReadyAgeMs": 1500,
            "oldestLeaseAgeMs": 999,
            "oldestDeadAgeMs": 7200000,
            "endingSoon": 1,
            "overdue": 0,
            "nextDueEngineMs": 5000,
            "engineNowMs": 3000,
            "reasons": {"REJECTED": 3},
            "paused": {"publish": True, "consume": True},
            "draining": True,
            "totals": {"published": 7},
            "policy": {"retry": {"limit": 5, "jitter": 0}, "ttlSec": 0},
        }
        self.assertEqual(
            cli_answers.describe("status", reply),
            u"queue         q\npaused        publish, consume\ndraining      no new messages are accepted\n"
            u"ready         2  (oldest 1.5 s)\nin flight     1  (oldest lease 999 ms, 1 ending soon)\n"
            u"delayed       1  (next in 2 s)\non hold       0\ndead letters  3  (oldest 2 h, REJECTED 3)\n"
            u"totals        published 7\n\npolicy\n  retry   jitter 0, limit 5\n  ttlSec  0",
        )

    def test_shows_what_a_consumed_dead_letter_died_of(self):
        failure = {"reasonCode": "REJECTED", "reasonMessage": "bad", "failedAtMs": 0}
        for more, shown in ((failure, True), (None, False)):
            text = cli_answers.describe("consume_next", {"message": dict(MESSAGE, failure=more)})
            self.assertEqual(u", REJECTED: bad\n" in text, shown, text)

    def test_shows_what_is_unusual_about_a_dead_letter(self):
        letter = {"queue": "q", "messageKey": "k", "consumerId": "", "quarantined": True, "preview": "p"}
        letter["originalMessage"] = {"payload": "whole"}
        text = cli_answers.describe("list_dlq", {"queue": "q.dlq", "messages": [letter]})
        lines = [u" ".join(line.split()) for line in text.splitlines()]
        self.assertEqual(lines[:2] + lines[5:6], [u"queue q", u"message key k", u"consumer -"])
        self.assertEqual(lines[7:], [
            u"quarantined only reprocess --message-key makes it ready again",
            u"payload whole",
        ])

    def test_shows_what_is_paused(self):
        for command, consume, publish, text in (
            ("pause", True, False, u"q: paused for consuming"),
            ("pause", True, True, u"q: paused for consuming and publishing"),
            ("resume", False, False, u"q: resumed; consuming and publishing are open"),
            ("resume", False, True, u"q: resumed; still paused for publishing"),
        ):
            reply = {"queue": "q", "paused": {"consume": consume, "publish": publish}}
            self.assertEqual(cli_answers.describe(command, reply), text)

    def test_a_publish_that_was_not_simply_stored_says_what_happened(self):
        key = u"msg:q:1"
        self.assertEqual(cli_answers.describe("publish", {"messageKey": key}), key)
        text = cli_answers.describe("publish", {"messageKey": key, "duplicate": True})
        self.assertEqual(text, key + u"\na duplicate of this message: nothing was stored")
        dead = {"messageKey": key, "state": "dead", "reasonCode": "QUEUE_FULL", "reason": u"it is full"}
        self.assertEqual(cli_answers.describe("publish", dead), key + u"\ndead: QUEUE_FULL: it is full")

    def test_shows_metrics_in_sections_with_units(self):
        reply = {
            "timestamp": 86400000,
            "uptimeMs": 7200000,
            "requests": {"total": 3, "success": 2, "error": 1},
            "errorCodes": {"ERR_PAUSED": 1, "ERR_TIMEOUT": 0},
            "rates": {"ack": 0.5, "publish": 2},
            "leaseToAckMs": {"count": 1, "p50": 1500},
            "timing": {"avgProcessingMs": 0.5},
            "news": {"of": "later"},
        }
        text = cli_answers.describe("metrics", reply)
        since = cli_output.moment(79200000)
        self.assertTrue(text.startswith(u"since %s (2 h)\n  requests  3\n  done      2\n" % since), text)
        for section in (
            u"errors by code\n  ERR_PAUSED  1\n\n",
            u"rates, last 60 s\n  publish  2/s\n  ack      0.5/s\n\n",
            u"time per request\n  mean   0.5 ms\n",
            u"  p50   1.5 s\n",
        ):
            self.assertIn(section, text)
        self.assertTrue(text.endswith(u"other\n  news.of  later"), text)

    def test_gives_sizes_a_fitting_unit(self):
        sizes = [cli_output.size(count) for count in (0, 999, 1500, 33554432, 78.9e9, 2e12, None)]
        self.assertEqual(sizes, [u"0 bytes", u"999 bytes", u"1.5 kB", u"33.6 MB", u"78.9 GB", u"2.0 TB", u"-"])

    def test_speaks_the_words_of_the_command_line(self):
        for wire, ours in (
            (u"Check the key with list_dlq.", u"Check the key with list-dlq."),
            (u"a publish or a set_policy makes the queue", u"a publish or a policy set makes the queue"),
            (u"if the leaseId was yours", u"if the --lease-id was yours"),
            (u"payload.delayMs must be an integer", u"--delay must be an integer"),
            (u"there is a queue 'list_dlq'", u"there is a queue 'list_dlq'"),
            (u"msg:leaseId:1 is not leased", u"msg:leaseId:1 is not leased"),
        ):
            self.assertEqual(cli_names.with_option_names(wire), ours)

    def test_explains_every_option_in_those_words(self):
        for text in list(cli_names.HELP.values()) + list(cli_names.HELP_OF.values()):
            text = text.partition("; its keys: ")[0]  # which have no options
            self.assertEqual(cli_names.with_option_names(text), text)
        text = "filter.colour is unknown; use minAttempt, consumerId"
        self.assertEqual(cli_names.with_option_names(text), text)
        self.assertEqual(
            cli_names.HELP["requeue"], "retry it later by the queue's policy (without it: dead letter)"
        )

    def test_exists_for_every_reply_even_an_empty_one(self):
        for _, command, _ in cli_names.SUBCOMMANDS:
            self.assertTrue(cli_answers.describe(command, {}))


if __name__ == "__main__":
    unittest.main()
