"""Retrieval on other hosts: network namespaces joined by links of 1 ms round trip, whole, cut and joined again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import delayed_link
import distant_generation
import retro_parts
import service_parts as parts

DELAY_S = "0.0005"  # each way: the paper's round trip of 1 ms
# Asks all addresses given, once for every line on standard input, and prints what came of it.
CLIENT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import service_parts as parts
from ragauge.retrieval.service.client import Client, RetrievalError
from ragauge.retrieval.service.fanout import Fanout
deadline, retries, partial = float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "partial"
searcher = Fanout([Client(a, deadline_s=deadline, retries=retries) for a in sys.argv[5:]], partial=partial)
expected = parts.Toy().search(parts.queries(6))
for line in sys.stdin:
    started = time.monotonic()
    try:
        found = searcher.search(parts.queries(6))
        told = {"missing": list(getattr(found[0], "missing", ())), "network_s": found[0].seconds["network"]}
        if line.strip() == "ping":
            told["round_trip_s"] = searcher.round_trip_s()
        if not told["missing"]:
            parts.assert_same(found, expected)
    except RetrievalError as error:
        told = {"error": str(error)}
    print(json.dumps({**told, "seconds": time.monotonic() - started}), flush=True)
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@dataclass
class Network:
    """A host that asks, and hosts that serve, each on a link of its own."""

    names: tuple[str, ...]  # of the namespaces, the asking one first
    links: dict[int, subprocess.Popen[str]]  # by serving host

    def inside(self, host: int) -> list[str]:
        """What stands before a command that runs on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def join(self, host: int) -> None:
        """Make the link between host 0, 10.231.<host>.1 on it, and a host, .2."""
        ends = [self.names[0], f"10.231.{host}.1/24", self.names[host], f"10.231.{host}.2/24"]
        command = [sys.executable, delayed_link.__file__, "/run/netns", *ends, DELAY_S]
        link = self.links[host] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert link.stdout is not None
        assert link.stdout.readline() == "up\n"

    def cut(self, host: int) -> None:
        """Packets from and to a host are lost without a word."""
        self.links[host].send_signal(signal.SIGUSR1)

    def mend(self, host: int) -> None:
        """Undo `cut`."""
        self.links[host].send_signal(signal.SIGUSR2)

    def end(self) -> None:
        """Take the links down."""
        for link in self.links.values():
            with link:
                link.kill()

    def ask(self, deadline_s: float, retries: int = 0, partial: bool = False) -> Asker:
        """A client on host 0 that asks all servers."""
        servers = [f"10.231.{host}.2:50051" for host in range(1, len(self.names))]
        arguments = [str(Path(parts.__file__).parent), str(deadline_s), str(retries), "partial" if partial else "whole"]
        command = [*self.inside(0), sys.executable, "-c", CLIENT, *arguments, *servers]
        return Asker(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def generate(self, schedule: str, deadline_s: float) -> Asker:
        """Generation on host 0, beside the retrieval of all servers."""
        servers = [f"10.231.{host}.2:50052" for host in range(1, len(self.names))]
        command = [*self.inside(0), sys.executable, distant_generation.__file__, schedule, str(deadline_s), *servers]
        return Asker(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


@dataclass(frozen=True)
class Asker:
    """A client in a process of its own, on another host."""

    process: subprocess.Popen[str]

    def begin(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, object]:
        assert self.process.stdout is not None
        told: dict[str, object] = json.loads(self.process.stdout.readline())
        return told

    def once(self, line: str = "") -> dict[str, object]:
        self.begin(line)
        return self.end()


@contextmanager
def asking(asker: Asker) -> Iterator[Asker]:
    with asker.process:
        yield asker


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Two hosts, each with half of the toy's chunks and half of what generation is tested on."""
    if os.geteuid() or not (shutil.which("ip") and Path("/dev/net/tun").exists()):
        pytest.skip("needs root, ip and /dev/net/tun to make networks of its own")
    network = Network(tuple(f"ragauge-{os.getpid()}-{host}" for host in range(3)), {})
    with ExitStack() as made:
        for name in network.names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
            made.callback(ip, "netns", "delete", name)
        made.callback(network.end)
        for host in (1, 2):
            network.join(host)
            options = ["--host", f"10.231.{host}.2", "--part", str(host - 1), "--of", "2"]
            for kind in (["--port", "50051"], ["--port", "50052", "--exact"]):
                made.enter_context(parts.process(*options, *kind, before=network.inside(host), start_s=60))
        yield network


def test_the_answer_over_the_links_is_that_of_one_index_and_takes_a_round_trip(network: Network) -> None:
    with asking(network.ask(deadline_s=5)) as asker:
        told = [asker.once("ping") for _ in range(3)]
    for each in told:
        assert each["missing"] == []
        assert float(str(each["network_s"])) >= 0.001
        assert float(str(each["round_trip_s"])) >= 0.001, "what S3 subtracts from the time of a search"


def test_a_cut_link_is_an_error_at_the_deadline_and_mends(network: Network) -> None:
    with asking(network.ask(deadline_s=0.7)) as asker:
        asker.once()
        network.cut(2)
        try:
            told = asker.once()
        finally:
            network.mend(2)
        assert str(told["error"]).startswith("retrieval server 10.231.2.2:50051, search of ")
        assert 0.6 < float(str(told["seconds"])) < 3
        again = [asker.once() for _ in range(4)]
        assert again[-1].get("missing") == [], again


def test_a_cut_link_is_a_labelled_partial_answer_where_asked(network: Network) -> None:
    with asking(network.ask(deadline_s=0.7, partial=True)) as asker:
        asker.once()
        network.cut(1)
        try:
            told = asker.once()
        finally:
            network.mend(1)
        assert told["missing"] == ["10.231.1.2:50051"]
        assert float(str(told["seconds"])) < 3


def test_a_link_that_is_cut_for_a_moment_delays_an_answer(network: Network) -> None:
    with asking(network.ask(deadline_s=8, retries=3)) as asker:
        asker.once()
        network.cut(1)
        asker.begin()
        network.mend(1)
        assert asker.end()["missing"] == []


# --- generation on one host, retrieval on others ---


@pytest.mark.parametrize("schedule", ["retro_plus", "piperag"])
def test_generation_over_the_links_is_that_of_one_process(network: Network, schedule: str) -> None:
    with asking(network.generate(schedule, deadline_s=10)) as asker:
        told = asker.once('{"pause_at": -1}')
    alone = distant_generation.generated(schedule, retro_parts.ExactRetriever(retro_parts.DOCUMENTS))
    assert {key: told.get(key) for key in alone} == alone, told


@pytest.mark.parametrize("schedule", ["retro_plus", "piperag"])
def test_a_link_that_is_cut_during_a_generation_ends_it_within_the_deadline(network: Network, schedule: str) -> None:
    """It is not continued without its retrieval, and is whole again once the link is."""
    with asking(network.generate(schedule, deadline_s=0.7)) as asker:
        whole = asker.once('{"pause_at": -1}')
        assert asker.once('{"pause_at": 3}') == {"paused": 3}
        network.cut(2)
        try:
            told = asker.once()
        finally:
            network.mend(2)
        assert str(told.get("error")).startswith("retrieval server 10.231.2.2:50052, search of "), told
        assert float(str(told["seconds"])) < 3
        again = [asker.once('{"pause_at": -1}') for _ in range(4)]
    assert {**again[-1], "seconds": 0} == {**whole, "seconds": 0}
