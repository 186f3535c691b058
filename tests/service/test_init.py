"""`init --system` where there is no systemd."""

from __future__ import annotations

from tests.service.machine import Machine


def test_a_system_without_systemd_gets_users_and_directories_too(machine: Machine) -> None:
    tools = "useradd groupadd sh env"
    machine.run("sh", "-c", f"mkdir -p /tools && for t in {tools}; do ln -sf $(command -v $t) /tools; done")
    machine.run("ln", "-sf", "/usr/bin/postroomd", "/tools/postroomd")
    machine.run(
        "sh", "-c", "for g in postroom postroom-clients postroom-ops; do groupdel -f $g; done; userdel postroom; true"
    )
    words = ["env", "PATH=/tools", "postroomd", "init", "--system", "--root", "/srv/postroom"]
    machine.run("sh", "-c", "mkdir /srv/postroom && echo '{}' >/srv/postroom/config.json")  # which served one user
    reported = machine.run(*words)
    assert "start it as the user postroom: /tools/postroomd run --root /srv/postroom" in reported
    assert "/srv/postroom/config.json: exists, and is the one that applies" in reported
    assert machine.run("stat", "--format", "%U %G %a", "/srv/postroom/ipc/requests") == "postroom postroom 3733\n"
    machine.run("postroomd", "check-permissions", "--root", "/srv/postroom")
    assert "/srv/postroom with its directories: exist" in machine.run(*words)
