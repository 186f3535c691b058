"""The configuration: what is wrong in it is an error that names the key, and nothing is ignored."""

from __future__ import annotations

import hashlib
import json

import pytest
from click.testing import CliRunner

from postroom_common.errors import ConfigurationError
from postroom_gateway.cli import main
from postroom_gateway.config.file import load

DIGEST = "ab" * 32


def read(tmp_path, toml: str):
    path = tmp_path / "gateway.toml"
    path.write_text(toml)
    return load(path)


def check(tmp_path, toml: str):
    path = tmp_path / "gateway.toml"
    path.write_text(toml)
    return CliRunner().invoke(main, ["check-config", "--config", str(path)])


def test_a_door_is_on_this_machine_alone_unless_the_file_says_otherwise(tmp_path):
    door = read(tmp_path, "[doors.lmq-http]").doors["lmq-http"]
    assert (door.address, door.port, door.authentication, door.dialect) == ("127.0.0.1", 9980, "none", "lmq-http")


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("doors = 1", "doors: expected a table"),
        ("[door.lmq-http]", "door: unknown key; expected one of: daemon, doors, limits"),
        ("[limits]\nconections = 1", "limits.conections: unknown key; expected one of: body_bytes"),
        ("[limits]\nconnections = 0", "limits.connections: 0 is out of range (1 to 1,000,000)"),
        ('[limits]\nconnections = "many"', "limits.connections: expected integer"),
        ("[limits]\nconnections = true", "limits.connections: expected integer"),
        ("[doors.lmq-http]\nprot = 1", "doors.lmq-http.prot: unknown key; expected one of: address, allow_anonymous"),
        ("[doors.lmq-http]\nprot = 1", "dialect, enabled, options, port"),
        ("[doors.lmq-http]\nport = 65536", "doors.lmq-http.port: 65536 is out of range (0 to 65,535)"),
        ("[doors.lmq-http]\nport = -1", "doors.lmq-http.port: -1 is out of range (0 to 65,535)"),
        (
            "[doors.lmq-http]\ndialect = 'lmq'",
            "dialect: expected one of lmq-http, lmq-rpc, mq-websocket, smss, simplemq, simplemq-tcp, got",
        ),
        ("[doors.smtp]", "doors.smtp.dialect: expected one of lmq-http, lmq-rpc"),
        ("[doors.LMQ]\ndialect = 'lmq-http'", "doors.LMQ: expected a name"),
        ("[doors.mailbox]\ndialect = 'lmq-http'", "doors.mailbox: expected a name"),
        ("[doors.lmq-http]\naddress = 'example.org'", "doors.lmq-http.address: expected an IP address or localhost"),
        (
            "[doors.lmq-http]\naddress = 'example.org'\nallow_anonymous = true",
            "doors.lmq-http.address: expected an IP address or localhost",
        ),
        ("[observe]\naddress = 'example.org'", "observe.address: expected an IP address or localhost"),
        ("[doors.lmq-http]\naddress = '0.0.0.0'", "allow_anonymous = true if that is what you want"),
        ("[doors.lmq-http]\naddress = '::'", "allow_anonymous = true if that is what you want"),
        ("[doors.lmq-http]\naddress = '192.168.1.7'", "anybody who reaches 192.168.1.7 could use this door"),
        ("[doors.lmq-http]\nauthentication = 'tokens'", "is tokens, but no principal has a token"),
        ("[doors.lmq-http]\nauthentication = 'certificates'", "certificates need tls_certificate"),
        ("[doors.lmq-http]\ntls_key = 'x'", "tls_certificate and tls_key belong together"),
        (
            f"[doors.lmq-rpc]\nauthentication = 'tokens'\n[principals.a]\ntoken_sha256 = '{DIGEST}'",
            "lmq-rpc has no place for tokens",
        ),
        (
            f"[doors.smss]\nauthentication = 'tokens'\n[principals.a]\ntoken_sha256 = '{DIGEST}'",
            "smss has no place for tokens",
        ),
        ("[doors.lmq-http]\nport = 9981", "9981 is also the port of observe"),
        ("[doors.lmq-http]\n[doors.second]\ndialect = 'lmq-http'", "9980 is also the port of lmq-http"),
        ("[observe]\naddress = '0.0.0.0'", "observe.address: expected a loopback address"),
        ("[principals.a]", "expected one of token_sha256, token_file and certificate_sha256"),
        ("[principals.a]\ntoken_sha256 = 'ab'", "expected SHA-256 in hexadecimal"),
        ("[principals.'a/b']\ntoken_sha256 = ''", "expected a name without slashes"),
        (
            f"[principals.a]\ntoken_sha256 = '{DIGEST}'\n[principals.b]\ntoken_sha256 = '{DIGEST}'",
            "principals.b: has the same token or certificate as a",
        ),
        ("[daemon]\nclient_id = '.x'", "daemon.client_id: expected a client id"),
        ("[log]\nlevel = 'loud'", "log.level: expected one of debug, info"),
        ("x", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, toml, text):
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path, toml)
    assert text in str(error.value)
    assert str(tmp_path / "gateway.toml") in str(error.value)


def test_an_open_door_without_authentication_must_be_asked_for_by_name(tmp_path):
    door = read(tmp_path, "[doors.lmq-http]\naddress = '0.0.0.0'\nallow_anonymous = true").doors["lmq-http"]
    assert door.address == "0.0.0.0"


def test_a_token_may_be_in_a_file_that_only_its_owner_reads(tmp_path):
    toml = "[principals.a]\ntoken_file = 'secret'"
    secret = tmp_path / "secret"
    with pytest.raises(ConfigurationError, match=r"principals\.a\.token_file: .*: No such file"):
        read(tmp_path, toml)
    secret.write_text("a-token-of-a-scanner-7\n")
    secret.chmod(0o640)
    with pytest.raises(ConfigurationError, match=r"others may read .*: run chmod 600"):
        read(tmp_path, toml)
    secret.chmod(0o600)
    digest = hashlib.sha256(b"a-token-of-a-scanner-7").digest()
    assert read(tmp_path, toml).principals["a"].token_digest == digest
    secret.write_text("short")
    with pytest.raises(ConfigurationError, match="fewer than 16 characters"):
        read(tmp_path, toml)
    secret.unlink()
    secret.symlink_to("/etc/hostname")
    with pytest.raises(ConfigurationError, match="token_file"):
        read(tmp_path, toml)


def test_check_config_says_what_is_served_and_ends_with_2_if_it_is_invalid(tmp_path):
    good = check(tmp_path, "[doors.lmq-http]\n[doors.lmq-rpc]")
    assert good.exit_code == 0
    assert "door lmq-http: lmq-http at 127.0.0.1 port 9980, no TLS, authentication none" in good.output
    assert "no door is enabled" in check(tmp_path, "").output
    assert "no door is enabled" in check(tmp_path, "[doors.lmq-http]\nenabled = false").output
    bad = check(tmp_path, "[doors.lmq-http]\nprot = 1")
    assert bad.exit_code == 2
    assert "doors.lmq-http.prot: unknown key" in bad.output
    assert check(tmp_path, "[doors.lmq-http.options]\nretry = 1").exit_code == 2
    assert check(tmp_path, "[doors.smss.options]\nalive_seconds = 20\nretention_hours = 0").exit_code == 0
    for wrong in ("alive_seconds = 0", "payload_bytes = 1.5", "retention_hours = -1", "sample = 1"):
        assert check(tmp_path, f"[doors.smss.options]\n{wrong}").exit_code == 2
    (tmp_path / "key").write_text("sixteen characters")
    (tmp_path / "key").chmod(0o600)
    right = f"strategies = {{a = 'PRIORITY'}}\nkey_file = '{tmp_path / 'key'}'\nwebsocket_url = 'wss://a/ws/message'"
    right += "\nheartbeat = {address = '0.0.0.0', peers = ['10.0.0.2:9091', '10.0.0.3:9091']}"
    assert check(tmp_path, f"[doors.simplemq.options]\n{right}").exit_code == 0
    for wrong in (
        "strategy = 'RANDOM'", "strategies = {a = 1}", "strategies = 1", "retries = -1", "capacity = 0", "retry = 1",
        "ack_seconds = 0", "priority_hosts = 'a'", "key_file = 'key'", "key_file = '/nowhere'", "websocket_url = 'a'",
        "message_bytes = 1", "token_hours = nan", "origins = [1]",
        "heartbeat = 1", "heartbeat = {a = 1}", "heartbeat = {address = 'a'}", "heartbeat = {peers = ['a:1']}",
        "heartbeat = {address = '0.0.0.0'}", "heartbeat = {port = 70000}", "heartbeat = {interval_seconds = 0}",
        "heartbeat = {peers = ['127.0.0.1']}", "heartbeat = {server_id = 1}",
        "heartbeat = {peers = ['10.0.0.2:9091', '[::1]:9091']}",
    ):  # fmt: skip
        assert check(tmp_path, f"[doors.simplemq.options]\n{wrong}").exit_code == 2, wrong
    assert check(tmp_path, "[doors.simplemq-tcp.options]\nretries = 0").exit_code == 0
    assert check(tmp_path, "[doors.simplemq-tcp.options]\norigins = []").exit_code == 2
    missing = check(tmp_path, "[doors.lmq-http]\ntls_certificate = 'a.pem'\ntls_key = 'a.key'")
    assert missing.exit_code == 2
    assert "No such file" in missing.output


def test_check_config_shows_no_secret(tmp_path):
    (tmp_path / "gateway.toml").write_text(f"[principals.a]\ntoken_sha256 = '{DIGEST}'\n[doors.lmq-http]")
    shown = CliRunner().invoke(main, ["check-config", "--json", "--config", str(tmp_path / "gateway.toml")])
    assert json.loads(shown.output)["principals"] == ["a"]
    assert DIGEST not in shown.output


def test_make_token_makes_a_token_and_its_digest(tmp_path):
    made = CliRunner().invoke(main, ["make-token", "scanner-7"])
    token = made.stderr.partition("client: ")[2].strip()
    settings = read(tmp_path, made.stdout)
    assert settings.principals["scanner-7"].token_digest == hashlib.sha256(token.encode()).digest()
    assert token not in made.stdout


def test_make_token_refuses_a_name_that_the_configuration_would_refuse():
    made = CliRunner().invoke(main, ["make-token", "a/b"])
    assert made.exit_code == 2
    assert made.stdout == ""
