"""The Debian packages, installed by dpkg over a copy of this machine: nothing of it is touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from release.build_deb import build_all
from release.debian import BINARIES
from tests.release.overlay import PATIENCE_S, Overlay, outside_of
from tests.service.machine import Machine, lacking

pytestmark = pytest.mark.slow

POSTROOM, CONSOLE, GATEWAY, CLUSTER = BINARIES
#: Not compressed much: they are installed once.
QUICK = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
DPKG = ("dpkg", "--force-unsafe-io", "--no-triggers")
#: What an installation leaves behind for good: the users, and what the tools of the system write down.
LEFT = (
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid", "/etc/.pwd.lock"),
    *("/var/lib/dpkg/", "/var/log/dpkg.log", "/var/lib/systemd/deb-systemd-"),
)


UNIT = "postroomd.service"
IPC = "/var/lib/postroom/ipc"


def is_able() -> str:
    """Why these tests cannot run here, or nothing."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and dpkg"
    missing = [tool for tool in ("dpkg-deb", "dpkg-shlibdeps", "unshare", "systemd-sysusers") if not shutil.which(tool)]
    return f"needs {', '.join(missing)}" if missing else ""


@pytest.fixture(scope="session")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages as they stand here, the daemon's as ``new``; and ``old``: its last release, from its commit."""
    problem = is_able()
    if problem:
        pytest.skip(problem)
    out = tmp_path_factory.mktemp("debs")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setenv(name, value)
        new, console, gateway, cluster = build_all([POSTROOM, CONSOLE, GATEWAY, CLUSTER], out / "new")
        (old,) = build_all([POSTROOM], out / "old", recorded=True)
    return {"new": new, "console": console, "gateway": gateway, "cluster": cluster, "old": old}


@pytest.fixture
def machine(tmp_path: Path, debs: dict[str, Path]) -> Overlay:
    """A copy of this machine with all packages in ``/tmp/in``."""
    overlay = Overlay(tmp_path / "machine")
    for name, path in debs.items():
        shutil.copyfile(path, overlay.incoming / f"{name}.deb")
    return overlay


def install(machine: Overlay, name: str) -> str:
    return machine.run(*DPKG, "--install", f"/tmp/in/{name}.deb")


#: The daemon at work while the rest of a script runs.
SERVE = """
postroomd run --root /var/lib/postroom >/tmp/log 2>&1 &
daemon=$!
export POSTROOM_IPC_ROOT=/var/lib/postroom/ipc
postroom health --wait-daemon --timeout 60000 >/dev/null || { cat /tmp/log >&2; exit 1; }
"""
STOP = "kill $daemon; wait $daemon\n"


#: Publishes one message after the other, and writes down those that were acknowledged, until it is told to stop.
PUBLISH = f"""
number=0
while [ ! -e /tmp/stop ]; do
    number=$((number + 1))
    postroom --ipc-root {IPC} publish --wait-daemon --queue load --message "$number" >/tmp/said || exit 1
    echo "$number"
done
"""


def test_an_installation_serves_as_its_user_without_the_checkout(machine: Overlay) -> None:
    install(machine, "new")
    assert machine.run("dpkg", "--verify", "postroom") == ""
    machine.run("postroomd", "check-permissions", "--root", "/var/lib/postroom")
    script = (
        SERVE + "echo hello | postroom publish --queue orders >/dev/null; postroom consume --queue orders --ack --raw\n"
    )
    assert machine.shell(script + STOP, user="postroom") == "hello\n"
    assert machine.shell("postroomd --version | head -n 1; yirangmq --version", user="nobody").startswith("postroomd ")
    places = machine.run("/usr/lib/postroom/bin/python3", "-I", "-c", "import sys; print('\\n'.join(sys.path))").split()
    assert places[-1].startswith("/usr/lib/postroom/lib/python3.")
    assert all(place.startswith(("/usr/lib/python3", "/usr/lib/postroom/")) for place in places)


def test_an_installation_has_its_pages_completions_and_units(machine: Overlay) -> None:
    install(machine, "new")
    for page in ("man1/postroom.1", "man1/postroom-publish.1", "man8/postroomd.8", "man8/postroomd-backup.8"):
        assert machine.exists(f"/usr/share/man/{page}.gz")
    page = machine.run("man", "--pager=cat", "8", "postroomd-backup")
    assert "write the state of DIR" in " ".join(page.split())  # man justifies lines with blanks
    assert machine.run("man", "--pager=cat", "yirangmq") == machine.run("man", "--pager=cat", "postroom")
    for path in (
        "bash-completion/completions/postroom",
        "doc/postroom/copyright",
        "doc/postroom/decisions/README.md",
        "doc/postroom/changelog.Debian.gz",
    ):
        assert machine.exists(f"/usr/share/{path}")
    assert machine.exists("/usr/lib/systemd/system/postroomd.service")
    assert "enabled" in machine.shell("systemctl --root=/ is-enabled postroomd.service")


def test_the_console_is_a_separate_package_that_uses_debian_s_python(machine: Overlay) -> None:
    install(machine, "console")
    assert machine.shell("postroom-console --version", user="nobody").startswith("postroom-console, version")
    assert machine.run("dpkg", "--verify", "postroom-console") == ""
    install(machine, "new")
    script = (
        SERVE
        + "postroom publish --queue orders --message x >/dev/null; postroom-console --root /var/lib/postroom --once\n"
    )
    assert "orders" in machine.shell(script + STOP, user="postroom")
    machine.run(*DPKG, "--purge", "postroom-console", "postroom")
    assert outside_of(machine.changed(), *LEFT) == []


def test_the_gateway_is_a_separate_package_with_a_user_units_and_a_configuration(machine: Overlay) -> None:
    install(machine, "gateway")
    assert machine.run("dpkg", "--verify", "postroom-gateway") == ""
    checked = machine.shell("postroom-gateway check-config", user="postroom-gateway")
    assert "door lmq-http: lmq-http at 127.0.0.1 port 9980" in checked
    assert "postroom-clients" in machine.run("id", "-nG", "postroom-gateway").split()
    for unit in ("postroom-gateway.service", "postroom-gateway.socket"):
        assert "enabled" in machine.shell(f"systemctl --root=/ is-enabled {unit}")
    for path in ("man/man8/postroom-gateway.8.gz", "doc/postroom-gateway/gateway.md.gz"):
        assert machine.exists(f"/usr/share/{path}") or machine.exists(f"/usr/share/{path.removesuffix('.gz')}")
    machine.shell("echo '# mine' >> /etc/postroom/gateway.toml")
    install(machine, "gateway")
    assert "# mine" in machine.shell("cat /etc/postroom/gateway.toml")
    machine.run(*DPKG, "--purge", "postroom-gateway")
    assert outside_of(machine.changed(), *LEFT) == []


def test_the_cluster_is_a_separate_package_that_waits_for_its_configuration(machine: Overlay) -> None:
    install(machine, "new")
    install(machine, "cluster")
    assert machine.run("dpkg", "--verify", "postroom-cluster") == ""
    assert "enabled" in machine.shell("systemctl --root=/ is-enabled postroom-cluster.service")
    checked = machine.try_run("systemd-analyze", "verify", "--man=no", "postroom-cluster.service")
    assert "postroom-cluster" not in checked.stderr, checked.stderr
    assert not machine.exists("/etc/postroom/cluster.toml")
    for path in ("man/man8/postroom-cluster.8.gz", "man/man8/postroom-cluster-create.8.gz"):
        assert machine.exists(f"/usr/share/{path}")
    assert machine.exists("/usr/share/doc/postroom-cluster/cluster.md")
    machine.shell(
        "sed 's/^node = .*/node = \"a\"/' /usr/share/postroom-cluster/cluster.toml >/etc/postroom/cluster.toml"
    )
    checked_by_it = machine.shell("postroom-cluster check-config", user="postroom")
    assert checked_by_it == "/etc/postroom/cluster.toml is valid: node a of cluster postroom\n"
    without_servers = machine.shell("postroom-cluster status 2>&1 || echo $?", user="postroom")
    assert "no NATS server accepts a connection" in without_servers
    machine.run(*DPKG, "--purge", "postroom-cluster", "postroom")
    assert outside_of(machine.changed(), *LEFT) == []


def test_an_upgrade_from_the_last_release_keeps_every_message(machine: Overlay) -> None:
    install(machine, "old")
    before = machine.shell("postroomd --version | head -n 1", user="postroom")
    publish = "for n in 1 2 3; do postroom publish --queue orders --message body-$n >/dev/null; done\n"
    machine.run("sed", "-i", "s/local-01/press-07/", "/etc/postroom/config.json")
    take = "postroom consume --queue orders --visibility 40000 --raw\n"
    assert machine.shell(SERVE + publish + take + "kill -9 $daemon\n", user="postroom") == "body-1"
    assert "Unpacking postroom" in install(machine, "new")
    after = machine.shell("postroomd --version | head -n 1", user="postroom")
    assert before != after
    assert machine.run("dpkg", "--verify", "postroom") == ""
    machine.shell("postroomd verify --root /var/lib/postroom", user="postroom")
    configuration = json.loads(machine.shell("postroomd check-config --json --root /var/lib/postroom", user="postroom"))
    assert configuration["settings"]["nodeId"] == {"value": "press-07", "source": "file"}
    take = "for n in 2 3; do postroom consume --queue orders --ack --raw; done; postroom status --queue orders --json\n"
    reported = machine.shell(SERVE + take + STOP, user="postroom")
    assert reported.startswith("body-2body-3")
    assert '"inflight": 1' in reported
    aside = (
        "postroomd backup --root /var/lib/postroom --to /tmp/backup.tar\n"
        "postroomd restore --root /var/lib/postroom --from /tmp/backup.tar --replace\n"
    )
    # Once, in the root: the files in it show the devices of the layers that they lie on.
    assert re.findall(" is in (.*)", machine.shell(aside, user="postroom")) == [
        machine.run("sh", "-c", "echo /var/lib/postroom/replaced-*").strip()
    ]


def test_a_removal_leaves_messages_and_a_purge_leaves_nothing(machine: Overlay) -> None:
    install(machine, "new")
    publish = "postroom publish --queue orders --message kept >/dev/null\n"
    machine.shell(SERVE + publish + STOP, user="postroom")
    machine.run(*DPKG, "--remove", "postroom")
    assert not machine.exists("/usr/lib/postroom")
    assert not machine.exists("/usr/bin/postroomd")
    install(machine, "new")
    taken = machine.shell(SERVE + "postroom consume --queue orders --ack --raw\n" + STOP, user="postroom")
    assert taken == "kept"
    machine.run(*DPKG, "--purge", "postroom")
    assert outside_of(machine.changed(), *LEFT) == []


def test_a_purge_follows_nothing_that_a_client_has_put_there(machine: Overlay) -> None:
    install(machine, "new")
    machine.shell(
        "useradd --system --no-create-home stranger; usermod --append --groups postroom-clients stranger;"
        " mkdir -p /srv/others; echo mine >/srv/others/file; chmod 777 /srv/others"
    )
    hostile = (
        "cd /var/lib/postroom/ipc/responses; mkdir own; chmod 700 own; ln -s /srv/others own/link; touch own/file;"
        " ln -s /srv/others away; ln /srv/others/file hard 2>/dev/null || true"
    )
    machine.shell(hostile, user="stranger")
    purged = machine.try_run(*DPKG, "--purge", "postroom")
    assert purged.returncode == 0, purged.stderr
    assert "/var/lib/postroom holds what is not the daemon's, and is left" in purged.stderr
    assert machine.run("cat", "/srv/others/file") == "mine\n"
    left = machine.run("find", "/var/lib/postroom", "!", "-type", "d", "-printf", "%P\n").split()
    assert sorted(left) == ["ipc/responses/own/file", "ipc/responses/own/link"]
    install(machine, "new")


def until_active(machine: Machine, version: str) -> None:
    """Wait until the service serves, and see which version it is."""
    machine.until(lambda: machine.ask("systemctl", "is-active", UNIT).returncode == 0, f"{UNIT} is active")
    health = machine.run("postroom", "--ipc-root", IPC, "health", "--wait-daemon", "--json", user="postroom")
    assert json.loads(health)["data"]["version"] == version


def test_under_systemd_an_upgrade_in_the_middle_of_traffic_loses_nothing(debs: dict[str, Path]) -> None:
    """A client goes on publishing while one daemon takes the other's place; then removal and purge."""
    problem = lacking()
    if problem:
        pytest.skip(f"no machine can be started here: {problem}")
    with Machine() as machine:
        for name, path in debs.items():
            shutil.copyfile(path, machine.root / f"{name}.deb")
        machine.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 0\n", 0o755)
        machine.start()
        machine.run(*DPKG, "--install", "/old.deb")
        until_active(machine, version_of(debs["old"]))
        machine.run("useradd", "--system", "--groups", "postroom-clients", "sensor")
        machine.write("/publish.sh", PUBLISH)
        publishing = machine.spawn("sh", "/publish.sh", user="sensor")
        assert publishing.stdout
        acknowledged = [publishing.stdout.readline()]
        machine.run(*DPKG, "--install", "/new.deb")
        until_active(machine, version_of(debs["new"]))
        acknowledged += [publishing.stdout.readline() for _ in range(5)]  # of the new daemon, at the latest
        machine.run("touch", "/tmp/stop")
        rest, said = publishing.communicate(timeout=PATIENCE_S)
        assert publishing.returncode == 0, said
        acknowledged += rest.splitlines(keepends=True)
        status = machine.run("postroom", "--ipc-root", IPC, "status", "--queue", "load", "--json", user="postroom")
        assert json.loads(status)["data"]["metrics"]["ready"] == len(acknowledged) == len(set(acknowledged))
        machine.run(*DPKG, "--purge", "postroom")
        assert machine.ask("systemctl", "is-active", UNIT).stdout.strip() == "inactive"
        assert machine.ask("test", "-e", "/var/lib/postroom").returncode == 1


def version_of(deb: Path) -> str:
    """The daemon's version in a package."""
    whole = subprocess.check_output(["dpkg-deb", "--field", deb, "Version"], text=True)
    return re.split(r"[~+-]", whole)[0]


def test_a_package_names_the_python_it_needs_and_contains_nothing_that_others_can_change(debs: dict[str, Path]) -> None:
    for name in ("new", "console", "gateway", "cluster"):
        fields = subprocess.check_output(["dpkg-deb", "--field", debs[name], "Depends"], text=True)
        assert re.fullmatch(r"python3\.\d+", fields.split(", ")[0])
        listing = subprocess.check_output(["dpkg-deb", "--contents", debs[name]], text=True)
        for line in listing.splitlines():
            mode, owner = line.split()[:2]
            assert owner == "root/root", line
            assert mode.startswith("l") or mode[5] == mode[8] == "-", line
            assert "s" not in mode[1:10], line
