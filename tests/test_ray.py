"""The data stage on a Ray cluster of two nodes on this machine, one of which is killed on the way: the bytes of the
stage without a cluster. `make test-ray` installs Ray and runs this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from common.errors import InputError
from common.runs import Run
from data_gen.__main__ import data_stage, label_stage, main, sample_stage
from data_gen.ray_cluster import RayCluster
from tests.test_architecture import PROJECT
from tests.test_stream_pool import PAYLOAD, SMALL, assert_same, config_of

os.environ.setdefault("RAY_worker_niceness", "0")  # workers at Ray's own 15 get no time on a machine with other work


def test_ray_that_is_not_installed_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'stepwise-ppo\[ray\]'") as caught:
        RayCluster(1, lambda: None)
    assert "\n" not in str(caught.value)
    config = PROJECT / "configs" / "micro.yaml"
    assert main(["--config", str(config), "--run", str(tmp_path), "data.cluster=ray"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture(scope="module")
def nodes():
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    second = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def local(nodes, tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("local"))
    data_stage(config_of(), run)
    return run


@pytest.mark.timeout(900)
def test_a_node_killed_while_it_samples_changes_no_byte(tmp_path, nodes, local, monkeypatch):
    cluster, second = nodes
    run = Run(tmp_path)
    fill, used = RayCluster.fill, []

    def killing(self, chunks, draw):
        for done, count in enumerate(fill(self, chunks, draw)):
            if not used:
                used.append((done, len(chunks)))
                cluster.remove_node(second, allow_graceful=False)
            yield count

    monkeypatch.setattr(RayCluster, "fill", killing)
    config = config_of("data.cluster=ray", "data.workers=2")
    sample_stage(config, run)
    assert used == [(0, 4)], "the node was to be killed with three chunks to go"
    label_stage(config, run)
    assert_same(run, local)
    measured = list((run.folder / "1_sample/chunks/measure").iterdir())
    assert len(measured) == 4, "each chunk once, nothing half written"


@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_goes_on(tmp_path, nodes, local):
    cluster, _ = nodes
    run = Run(tmp_path)
    arguments = ["--config", str(PROJECT / "configs/micro.yaml"), "--run", str(run.root), *SMALL, "data.cluster=ray"]
    command = [sys.executable, "-m", "data_gen", *arguments]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": str(PROJECT)}
    measured = run.folder / "1_sample/chunks/measure"
    with subprocess.Popen(command, env=environment, cwd=PROJECT) as driver:
        while driver.poll() is None and not list(measured.glob("*.jsonl")):
            time.sleep(0.1)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    assert 0 < len(list(measured.glob("*.jsonl"))) < 4
    ended = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert "problems are there; continues with problem" in ended.stdout
    for name in PAYLOAD[:4]:
        assert (run.folder / name).read_bytes() == (local.folder / name).read_bytes(), name
