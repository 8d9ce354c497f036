"""Parameter servers: the same weights as one process, the order of the plan on the wire, and lost peers by name."""

import copy
import itertools
import json
import socket
import threading
import time
from collections.abc import Sequence

import pytest
import torch
from tests.training import models, threads
from torch import nn

from tdcs_train.errors import InputError
from tdcs_train.model.measuring import Subject, profile
from tdcs_train.model.tracing import trace
from tdcs_train.peers.errors import PeerError
from tdcs_train.plan.order_plan import document, plan_order
from tdcs_train.plan.transfer_order import Rule
from tdcs_train.ps.parameters import priorities_of, shared_parameters
from tdcs_train.ps.server import ParameterServer
from tdcs_train.ps.worker import ServedModel

RATE = 0.05


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, momentum=0.9)


class Servers:
    """Servers in threads; `failures` are what they ended with."""

    def __init__(self, model: nn.Module, *, servers: int, workers: int, **options: object) -> None:
        self.failures: list[BaseException] = []
        self.hosts: list[tuple[str, int]] = []
        self.threads: list[threading.Thread] = []
        self.made: list[ParameterServer] = []
        for number in range(servers):
            listener = socket.create_server(("127.0.0.1", 0))
            self.hosts.append(("127.0.0.1", listener.getsockname()[1]))
            server = ParameterServer(
                copy.deepcopy(model),
                sgd,
                listener=listener,
                workers=workers,
                number=number,
                servers=servers,
                **options,  # type: ignore[arg-type]
            )
            self.made.append(server)
            self.threads.append(threading.Thread(target=self._serve, args=(server,)))
            self.threads[-1].start()

    def _serve(self, server: ParameterServer) -> None:
        try:
            server.serve()
        except BaseException as error:
            self.failures.append(error)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


def together(work: Sequence[threading.Thread]) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (2, 2)])
def test_workers_and_servers_learn_what_one_process_learns_on_all_batches(workers: int, servers: int) -> None:
    torch.manual_seed(3)
    model = models.SmallVgg()
    plain = copy.deepcopy(model)
    descent = sgd(list(plain.parameters()))
    steps = 12
    for step in range(steps):
        descent.zero_grad()
        for worker in range(workers):
            inputs, labels = models.images(4, step * workers + worker)
            (models.cross_entropy(plain(inputs), labels) / workers).backward()
        descent.step()
    running = Servers(model, servers=servers, workers=workers)
    copies: list[nn.Module] = []

    def work(rank: int) -> None:
        replica = copy.deepcopy(model)
        with ServedModel(replica, running.hosts, worker=rank, workers=workers) as served:
            for step in range(steps):
                inputs, labels = models.images(4, step * workers + rank)
                models.cross_entropy(replica(inputs), labels).backward()
            served.wait()
            copies.append(copy.deepcopy(replica))

    together([threading.Thread(target=work, args=(rank,)) for rank in range(workers)])
    running.join()
    assert not running.failures
    assert len(copies) == workers
    for replica in copies:
        for name, value in plain.named_parameters():
            torch.testing.assert_close(replica.get_parameter(name).data, value.data, atol=1e-6, rtol=0)


def test_a_layer_waits_for_its_own_parameters_only() -> None:
    torch.manual_seed(3)
    model = threads.chain([4, 4, 4])
    listener = socket.create_server(("127.0.0.1", 0))
    hosts = [("127.0.0.1", listener.getsockname()[1])]
    failures: list[BaseException] = []

    def serve_the_first_layer_only() -> None:
        server = ParameterServer(copy.deepcopy(model), sgd, listener=listener, workers=1)
        server._own = {
            number: parameter for number, parameter in server._own.items() if parameter.name.startswith("0.")
        }
        try:
            server.serve()
        except PeerError as error:
            failures.append(error)

    thread = threading.Thread(target=serve_the_first_layer_only)
    thread.start()
    replica = copy.deepcopy(model)
    with ServedModel(replica, hosts, worker=0, workers=1, timeout=2.0) as served:
        first = replica[0](torch.ones(1, 4))
        assert first.shape == (1, 4)
        with pytest.raises(PeerError, match=r"server 0 at .* \(2\.\w+\) for 2 s"):
            replica[2](first)
        served._sent = [-1] * len(served._sent)  # nothing is owed any more
    thread.join(20)
    assert not thread.is_alive()
    assert not failures


class Relay:
    """A link of a fixed rate between a worker and a server, which notes nothing but bytes: it makes queues form."""

    def __init__(self, target: tuple[str, int], rate: float) -> None:
        self._target, self._rate = target, rate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", self._listener.getsockname()[1])
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(self._target)
            for source, target in ((near, far), (far, near)):
                source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 14):
                with self._lock:
                    time.sleep(len(data) / self._rate)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_what_waits_for_the_link_leaves_in_the_order_of_the_plan_in_both_directions() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    names = [name for name, _ in model.named_parameters()]
    ordered_names = sorted(names, key=lambda name: (int(name.split(".")[0]) * 5 % 8, name))
    priorities = {name: len(names) - place for place, name in enumerate(ordered_names)}
    running = Servers(model, servers=1, workers=1, priorities=priorities)
    relay = Relay(running.hosts[0], rate=2e7)
    replica = copy.deepcopy(model)
    with ServedModel(replica, [relay.address], worker=0, workers=1, priorities=priorities) as served:
        replica(torch.ones(2, 256)).sum().backward()
        served.wait()
        sent, order = served.sent_order[0], served.order_kept
    running.join()
    assert not running.failures
    # Backward makes gradients from the last layer on; one or two have left before any other waits.
    waited = sent[2:]
    assert waited != sorted(waited, key=lambda name: -names.index(name)), (
        "the order must differ from that of backward"
    )
    overtaken = sum(priorities[first] < priorities[second] for first, second in itertools.pairwise(waited))
    assert overtaken <= 3, sent
    assert (order.transmissions, order.share) == (len(names), 1.0)
    assert order.overtook > 0
    back = running.made[0].order_kept
    assert (back.transmissions, back.share) == (2 * len(names), 1.0)


def test_a_worker_with_another_model_is_refused_on_both_sides() -> None:
    running = Servers(threads.chain([4, 4]), servers=1, workers=1, timeout=10.0)
    with pytest.raises(InputError, match="refused this worker: server 0 has parameters"):
        ServedModel(threads.chain([4, 5]), running.hosts, worker=0, workers=1, timeout=10.0)
    running.join()
    assert "use the same script, plan and number of workers" in str(running.failures[0])


def test_a_worker_that_does_not_come_is_named() -> None:
    running = Servers(threads.chain([4, 4]), servers=1, workers=1, timeout=1.0)
    running.join()
    assert "worker 0 did not come within 1 s" in str(running.failures[0])


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PeerError, match=f":{port} does not answer"):
        ServedModel(threads.chain([4, 4]), [("127.0.0.1", port)], worker=0, workers=1, timeout=1.0)


def test_a_lost_worker_ends_the_server_and_then_the_other_worker_with_its_name() -> None:
    model = threads.chain([4, 4])
    running = Servers(model, servers=1, workers=2, timeout=10.0)
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        replica = copy.deepcopy(model)
        try:
            with ServedModel(replica, running.hosts, worker=rank, workers=2, timeout=10.0):
                replica(torch.ones(1, 4)).sum().backward()
                if rank == 1:
                    raise RuntimeError("out of memory")
                replica(torch.ones(1, 4)).sum().backward()
                replica(torch.ones(1, 4)).sum().backward()
        except Exception as error:
            errors.append(error)

    together([threading.Thread(target=work, args=(rank,)) for rank in (0, 1)])
    running.join()
    assert "worker 1 ended: a worker failed: out of memory" in str(running.failures[0])
    lost = [error for error in errors if isinstance(error, PeerError)]
    assert "worker 1 ended" in str(lost[0])


def test_the_priorities_of_an_order_are_those_of_the_layers_parameters() -> None:
    model = models.SmallVgg()
    subject = Subject(model=model, batch=lambda: models.images(4, 1), loss=models.cross_entropy)
    plan = plan_order(profile(subject, steps=2), bandwidth=1e6, rule=Rule.TIMED, orders=1, seed=0)
    order = json.loads(json.dumps(document(plan)))
    priorities = priorities_of(order, trace(model), source="order.json")
    assert priorities.keys() == dict(model.named_parameters()).keys()
    assert priorities["features.0.weight"] == priorities["features.0.bias"]
    assert priorities["features.0.weight"] > priorities["classifier.2.weight"]
    with pytest.raises(InputError, match=r"order.json has no transfer for node\d+"):
        priorities_of({"transfers": order["transfers"][:1]}, trace(model), source="order.json")
    with pytest.raises(InputError, match="has no list `transfers`"):
        priorities_of({}, trace(model), source="order.json")


def test_servers_hold_about_as_many_bytes_each() -> None:
    shared = shared_parameters(models.SmallVgg(), servers=2)
    held = [sum(parameter.bytes for parameter in shared if parameter.server == number) for number in (0, 1)]
    assert min(held) > 0.25 * max(held)
    assert shared_parameters(threads.chain([4, 4]), servers=1)[0].priority_class == 3
