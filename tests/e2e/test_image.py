"""The container image for servers, built by a real docker daemon on a base of this machine's own packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.dockerd import PACKAGES, docker, minimal_root
from tests.unit.docs.pages import ROOT

BASE = "codebutler-test-base"
IMAGE = "codebutler-test-image"
NEEDED = (
    *PACKAGES,
    "bubblewrap",
    "passwd",
    "python3",
    "python3-venv",
    "python3-pip-whl",
    "python3-setuptools-whl",
)
# As the how-to says: bubblewrap needs user namespaces and a /proc of its own.
WALLS = tuple(f"--security-opt={each}=unconfined" for each in ("seccomp", "apparmor", "systempaths"))


@pytest.fixture(scope="module")
def image(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("image")
    wheels = place / "dist"
    lock = ROOT / "tests" / "requirements.lock"
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "wheel", "-w", wheels, "-c", lock, f"{ROOT}[cluster]"], check=True
    )
    shutil.copytree(ROOT / "deploy", place / "deploy")
    shutil.copy(ROOT / ".dockerignore", place)
    root = minimal_root(place / "root.tar", NEEDED)
    docker(docker_host, "import", str(root), BASE)
    root.unlink()
    arguments = (f"BASE={BASE}", "PACKAGES=", "PIP_NO_INDEX=1")
    build = ["build", "-q", "--network=none", "-t", IMAGE, "-f", str(place / "deploy" / "Dockerfile")]
    with_arguments = [word for each in arguments for word in ("--build-arg", each)]
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(
        ["docker", "--host", docker_host, *build, *with_arguments, place],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    yield IMAGE
    docker(docker_host, "image", "rm", "-f", IMAGE, BASE)


# The demo inside, a message to its agent, and what that made.
SCRIPT = """
codebutler demo --no-browser --json --port 0 > /tmp/demo &
until [ -s /tmp/demo ]; do kill -0 $! || exit 1; sleep 0.2; done
value() { python3 -c "import json; print(json.load(open('/tmp/demo'))['$1'])"; }
CODEBUTLER_HOME=$(value home) codebutler send --wait sample 'create made.txt with hello' >&2
echo "$(value sandboxed) $(cat "$(value path)/made.txt")"
"""


@pytest.mark.root
@pytest.mark.timeout(600)
def test_an_ordinary_user_serves_in_it_and_agents_have_their_sandbox(docker_host: str, image: str) -> None:
    settings = json.loads(docker(docker_host, "image", "inspect", image))[0]["Config"]
    assert (settings["User"], settings["Volumes"]) == ("1000:1000", {"/data": {}})
    assert (settings["Entrypoint"], settings["Cmd"]) == (["codebutler"], ["supervise"])
    run = ("run", "--rm", "--network=none")
    assert docker(docker_host, *run, image, "--version").startswith("codebutler ")
    assert docker(docker_host, *run, *WALLS, "--entrypoint=sh", image, "-c", SCRIPT) == "True hello"
    # It has what a gateway needs.
    imports = ("-c", "import nats, codebutler.parent.gateway; print('ready')")
    assert docker(docker_host, *run, "--entrypoint=/opt/codebutler/bin/python3", image, *imports) == "ready"
