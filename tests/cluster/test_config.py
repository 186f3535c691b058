"""The configuration: what is wrong is an error that names the key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_cluster.cli import main
from postroom_cluster.config.file import load, read
from postroom_cluster.config.settings import NatsSection
from postroom_cluster.connection import sign_in
from postroom_common.errors import ConfigurationError

CLUSTER = {"name": "plant", "node": "a"}
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "cluster.name: is missing"),
    ({"cluster": {"name": "plant"}}, "cluster.node: is missing"),
    ({"cluster": {**CLUSTER, "node": "a.b"}}, "cluster.node: expected name of 1 to 64"),
    ({"cluster": CLUSTER, "clutser": {}}, "clutser: unknown key"),
    ({"cluster": CLUSTER, "nats": {"server": []}}, "nats.server: unknown key"),
    ({"cluster": CLUSTER, "nats": {"servers": []}}, "nats.servers: expected a list of addresses"),
    ({"cluster": CLUSTER, "nats": {"servers": ["a:4222"]}}, "nats.servers: expected addresses such as nats://"),
    ({"cluster": CLUSTER, "nats": {"servers": ["nats://u:p@a"]}}, "without a password"),
    ({"cluster": CLUSTER, "nats": {"user": "u"}}, "user and password_file belong together"),
    ({"cluster": CLUSTER, "nats": {"nkey": "k", "token_file": "t"}}, "has token_file and nkey: give one of them"),
    ({"cluster": CLUSTER, "nats": {"tls_key": "k"}}, "tls_certificate and tls_key belong together"),
    ({"cluster": CLUSTER, "failover": {"after_seconds": 0}}, "failover.after_seconds: 0"),
)


def test_a_configuration_that_is_wrong_is_refused_with_the_key():
    for tree, text in REFUSED:
        with pytest.raises(ConfigurationError) as error:
            read(tree, Path("/etc/postroom/cluster.toml"))
        assert text in str(error.value)


def test_paths_are_below_the_files_directory_and_check_config_reads_secrets(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nname = "plant"\nnode = "a"\n[nats]\nuser = "u"\npassword_file = "secret"\n')
    secret = tmp_path / "secret"
    secret.write_text("a password\n")
    os.chmod(secret, 0o644)
    check = ["check-config", "--config", str(path)]
    refused = CliRunner().invoke(main, check)
    assert refused.exit_code == 2 and "others may read" in refused.output
    os.chmod(secret, 0o600)
    assert sign_in(load(path).nats) == {"user": "u", "password": "a password"}
    assert "node a of cluster plant" in CliRunner().invoke(main, check).output
    unsure = CliRunner().invoke(main, ["create", "--config", str(path)])
    assert unsure.exit_code == 2 and "add --no-other-node-leads" in unsure.output


def test_tls_is_used_if_an_address_or_a_file_says_so():
    assert "tls" not in sign_in(NatsSection())
    assert "tls" in sign_in(NatsSection(servers=("tls://a:4222",)))
    with pytest.raises(ConfigurationError, match="TLS of the NATS servers"):
        sign_in(NatsSection(tls_ca="/nowhere"))
