"""``GET /stats``: the figures that the real server showed."""

from __future__ import annotations

import json

import pytest

from postroom_gateway.dialects.lmq.statistics import QueueFigures, encode_statistics

RECORDED = (
    '{"active_nodes":["nonode@nohost"],"all_nodes":["nonode@nohost"],"queues":{"ane":{"stats":{'
    '"push":{"count":4,"one":0.568017765851729,"five":0.593388581528647,"fifteen":0.597783939201959,'
    '"day":0.599976852521635,"mean":3.97285151914393e-07,"acceleration":{"one_to_five":-8.45693855897256e-05,'
    '"five_to_fifteen":-7.32559612219631e-06,"one_to_fifteen":-3.30735259446994e-05}},'
    '"pull":{"count":5,"one":0.920044414629323,"five":0.983471453821617,"fifteen":0.994459848004897,'
    '"day":0.999942131304087,"mean":4.96675107825682e-07,"acceleration":{"one_to_five":-0.000211423463974314,'
    '"five_to_fifteen":-1.83139903054654e-05,"one_to_fifteen":-8.26838148617483e-05}},'
    '"retention":{"min":0.00085902214050293,"max":0.103298902511597,"arithmetic_mean":0.0345353126525879,'
    '"geometric_mean":0.00770688998731487,"harmonic_mean":0.0019851145802291,"median":0.00570583343505859,'
    '"variance":0.00214464163129264,"standard_deviation":0.0463102756555459,"skewness":0.494205862399534,'
    '"kurtosis":-1.86141676609256,"percentile":{"50":0.00570583343505859,"75":0.061945915222168,'
    '"90":0.103298902511597,"95":0.103298902511597,"99":0.103298902511597,"999":0.103298902511597},'
    '"histogram":[{"bin":0.103298902511597,"count":5}],"n":5}},"size":1,"memory":1352,"nodes":["nonode@nohost"],'
    '"props":{"accum":0,"retry":1,"timeout":1}}}}'
)


def daemons_meter(meter: dict) -> dict:
    names = {"one": "oneMinute", "five": "fiveMinutes", "fifteen": "fifteenMinutes", "day": "oneDay"}
    return {names.get(name, name): value for name, value in meter.items() if name != "acceleration"}


def daemons_sample(sample: dict) -> dict:
    names = {
        "arithmetic_mean": "mean",
        "geometric_mean": "geometricMean",
        "harmonic_mean": "harmonicMean",
        "standard_deviation": "standardDeviation",
    }
    found = {names.get(name, name): value for name, value in sample.items()}
    percentiles = found.pop("percentile")
    found["percentiles"] = {"99.9" if name == "999" else name: value for name, value in percentiles.items()}
    found["histogram"] = [{"upTo": one["bin"], "count": one["count"]} for one in found["histogram"]]
    return found


def test_the_figures_are_shown_as_the_real_server_did():
    recorded = json.loads(RECORDED)["queues"]["ane"]
    stats = recorded["stats"]
    queue = QueueFigures(
        {"queue": "ane", "ready": 0, "inflight": 1, "bytes": 1352},
        recorded["props"],
        {
            "published": daemons_meter(stats["push"]),
            "delivered": daemons_meter(stats["pull"]),
            "retention": daemons_sample(stats["retention"]),
        },
    )
    shown = json.loads(encode_statistics("nonode@nohost", [queue]))
    for meter in ("push", "pull"):  # LMQ computes with more digits than it shows
        assert shown["queues"]["ane"]["stats"][meter].pop("acceleration") == pytest.approx(
            stats[meter].pop("acceleration")
        )
    assert shown["queues"]["ane"] == recorded
    assert list(shown) == ["active_nodes", "all_nodes", "queues"]
    assert list(shown["queues"]["ane"]) == list(recorded)


def test_a_queue_that_is_not_measured_has_its_totals_and_zeros():
    row = {
        "queue": "q",
        "ready": 2,
        "gathering": 1,
        "dlq": 7,
        "bytes": 30,
        "totals": {"published": 7, "part_appended": 2, "leased": 5},
    }
    queue = QueueFigures(row, {"accum": 0.4, "retry": 2, "timeout": 30}, {})
    shown = json.loads(encode_statistics("n", [queue]))["queues"]["q"]
    assert (shown["size"], shown["memory"]) == (3, 30)
    assert shown["props"] == {"accum": 400, "retry": 2, "timeout": 30}
    assert (shown["stats"]["push"]["count"], shown["stats"]["pull"]["count"]) == (9, 5)
    assert shown["stats"]["retention"]["histogram"] == [{"bin": 0, "count": 0}]


def test_without_queues_there_are_none():
    assert encode_statistics("n", []) == b'{"active_nodes":["n"],"all_nodes":["n"],"queues":{}}'


def test_the_door_shows_every_queue(gateway):
    gateway.ask("PATCH", "/properties/stat%2Facc", b'{"accum":0.4}', {"content-type": "application/json"})
    gateway.ask("POST", "/messages/stat", b"m1")
    gateway.ask("POST", "/messages/stat", b"m2")
    gateway.ask("GET", "/messages/stat?t=0")
    answer = gateway.ask("GET", "/stats")
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    shown = json.loads(answer.body)
    queue = shown["queues"]["stat"]
    assert (queue["size"], queue["nodes"]) == (2, shown["active_nodes"])
    assert (queue["stats"]["push"]["count"], queue["stats"]["pull"]["count"]) == (2, 1)
    assert queue["stats"]["retention"]["n"] == 1
    assert shown["queues"]["stat/acc"]["props"] == {"accum": 400, "retry": 2, "timeout": 30}
    assert gateway.ask("POST", "/stats").status == 405


def test_the_policies_of_all_queues_are_asked_for_at_once(gateway):
    for number in range(30):
        gateway.ask("POST", f"/messages/q{number}", b"m")
    asked = gateway.metric("postroom_gateway_daemon_requests_total")
    assert len(json.loads(gateway.ask("GET", "/stats").body)["queues"]) == 30
    assert gateway.metric("postroom_gateway_daemon_requests_total") - asked == 2
