"""The copies of a Dataset as something to scale: by hand, and by a real HorizontalPodAutoscaler with KEDA's protocol.

KEDA itself does not run here. The test does what KEDA does between the two: it asks the operator's external scaler by
gRPC, makes the HorizontalPodAutoscaler that KEDA would make of the answer, and serves its metric to the API server.
"""

from __future__ import annotations

import datetime
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import World, world
from tests.support.certificates import TestAuthority
from tests.support.kube import Object, condition
from tests.support.programs.ports import free_ports

from tdcs.control.operator import scaler_service
from tdcs.trust.identity import CERTIFICATE_FILE, KEY_FILE
from tdcs.trust.roles import Role

__all__ = ["jobs", "world"]

GROUP = "external.metrics.k8s.io"
BAR_SECONDS = 30


class Keda:
    """What KEDA does with a trigger of type `external`.

    Args:
        world: where the ScaledObject would be.
        scaler: port of the operator's scaler.
        metadata: of the trigger.
        folder: for the certificate of the API that KEDA serves.
    """

    def __init__(self, world: World, *, scaler: int, metadata: dict[str, str], folder: Path) -> None:
        self._world = world
        pool = descriptor_pool.DescriptorPool()
        descriptors = descriptor_pb2.FileDescriptorSet()
        descriptors.ParseFromString(
            Path(scaler_service.__file__).with_name(scaler_service.DESCRIPTORS).read_bytes()
        )
        for descriptor in descriptors.file:
            pool.Add(descriptor)
        self._classes = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"externalscaler.{name}"))
            for name in (
                "ScaledObjectRef",
                "GetMetricSpecResponse",
                "GetMetricsRequest",
                "GetMetricsResponse",
            )
        }
        self._channel = grpc.insecure_channel(f"127.0.0.1:{scaler}")
        self._ref = {"name": "pictures", "namespace": world.namespace, "scalerMetadata": metadata}
        (port,) = free_ports(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        # The API server shows its own certificate, of an authority that is not ours: it is not asked for.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        mine = TestAuthority().folder(folder, Role.OPERATOR)
        context.load_cert_chain(mine / CERTIFICATE_FILE, mine / KEY_FILE)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._port = port

    def spec(self) -> Any:
        """The metric, with its target for each copy."""
        (metric_spec,) = self._call(
            "GetMetricSpec", self._classes["ScaledObjectRef"](**self._ref)
        ).metricSpecs
        return metric_spec

    def value(self, name: str) -> float:
        """The metric's value now."""
        ref = self._classes["ScaledObjectRef"](**self._ref)
        request = self._classes["GetMetricsRequest"](scaledObjectRef=ref, metricName=name)
        (metric,) = self._call("GetMetrics", request).metricValues
        return float(metric.metricValueFloat)

    def start(self) -> None:
        """Serve the metric, and make the autoscaler."""
        self._thread.start()
        kube, namespace = self._world.kube, self._world.namespace
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._port}]}
        metadata = {"name": "keda-metrics", "namespace": namespace}
        kube.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        kube.create(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"v1beta1.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "version": "v1beta1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {**metadata, "port": self._port},
                },
            }
        )
        metric = self.spec()
        target = {"type": "AverageValue", "averageValue": f"{round(1000 * metric.targetSizeFloat)}m"}
        kube.create(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "keda-hpa-pictures", "namespace": namespace},
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "tdcs.io/v1alpha2",
                        "kind": "Dataset",
                        "name": "pictures",
                    },
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "metrics": [
                        {
                            "type": "External",
                            "external": {"metric": {"name": metric.metricName}, "target": target},
                        }
                    ],
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
                },
            }
        )

    @property
    def able_to_scale(self) -> bool:
        """Whether the autoscaler can read and write the number of copies."""
        autoscaler = self._world.kube.get(
            "HorizontalPodAutoscaler", "keda-hpa-pictures", namespace=self._world.namespace
        )
        return condition(autoscaler, "AbleToScale") == "True"

    def stop(self) -> None:
        """All of it is gone."""
        self._world.kube.delete("APIService", f"v1beta1.{GROUP}")
        self._world.kube.delete(
            "HorizontalPodAutoscaler", "keda-hpa-pictures", namespace=self._world.namespace
        )
        self._server.shutdown()
        self._thread.join()
        self._channel.close()

    def _call(self, name: str, request: Any) -> Any:
        answer = self._classes[f"{name}Response"]
        call: Any = self._channel.unary_unary(
            f"/externalscaler.ExternalScaler/{name}",
            request_serializer=lambda asked: asked.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=10)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        value = self.value

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = self.path.partition("?")[0].strip("/").split("/")
                if parts[:3] != ["apis", GROUP, "v1beta1"]:
                    self.send_error(404)
                    return
                if len(parts) == 3:
                    resource = {"name": "readers", "namespaced": True, "kind": "ExternalMetricValueList"}
                    self._say(
                        {
                            "kind": "APIResourceList",
                            "apiVersion": "v1",
                            "groupVersion": f"{GROUP}/v1beta1",
                            "resources": [{**resource, "singularName": "", "verbs": ["get"]}],
                        }
                    )
                    return
                item = {
                    "metricName": parts[-1],
                    "metricLabels": {},
                    "timestamp": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "value": f"{round(1000 * value(parts[-1]))}m",
                }
                version = f"{GROUP}/v1beta1"
                self._say(
                    {
                        "kind": "ExternalMetricValueList",
                        "apiVersion": version,
                        "metadata": {},
                        "items": [item],
                    }
                )

            def _say(self, found: Object) -> None:
                body = json.dumps(found).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def copies(world: World) -> tuple[int, int]:
    """The copies that the Dataset asks for, and those that there are: as the scale subresource has them."""
    scale = world.kube.get_under("Dataset", "pictures", "scale", namespace=world.namespace)
    return scale["spec"]["replicas"], scale["status"]["replicas"]


@pytest.fixture
def scaler() -> int:
    (port,) = free_ports(1)
    return port


def test_copies_are_scaled_by_hand_through_the_subresource(world: World) -> None:
    world.create_cluster()
    with world.operator():
        world.create_dataset(placement={"mode": "Replicate", "nodeCount": 1})
        world.wait_ready()
        world.wait(lambda: copies(world) == (1, 1))
        scale = world.kube.get_under("Dataset", "pictures", "scale", namespace=world.namespace)
        assert scale["status"]["selector"] == "tdcs.io/dataset-name=pictures"
        world.kube.patch(
            "Dataset", "pictures", {"spec": {"replicas": 3}}, namespace=world.namespace, subresource="scale"
        )
        world.wait(lambda: copies(world) == (3, 3), deadline=BAR_SECONDS)
        assert len(world.dataset()["status"]["copies"]) == 3


def test_a_copy_comes_for_a_job_that_waits_for_one_and_goes_after_it(
    jobs: JobWorld, scaler: int, tmp_path: Path
) -> None:
    jobs.create_cluster()
    reads = [{"name": "pictures", "mountPath": "/data"}]
    with jobs.operator(scaler_port=scaler):
        jobs.create_dataset(placement={"mode": "Replicate", "nodeCount": 1}, access={"maxConcurrentJobs": 1})
        jobs.wait_ready()
        keda = Keda(jobs, scaler=scaler, metadata={"dataset": "pictures"}, folder=tmp_path)
        keda.start()
        try:
            # The controller manager looks for new kinds twice a minute.
            jobs.wait(lambda: keda.able_to_scale)
            jobs.gpu_job("first", pods=1, datasets=reads)
            jobs.run_pods("first", count=1)
            jobs.gpu_job("second", pods=1, datasets=reads)
            jobs.wait(lambda: keda.value("readers") == 2)
            jobs.wait(lambda: copies(jobs) == (2, 2), deadline=BAR_SECONDS)
            jobs.run_pods("second", count=1)
            read = {jobs.job(name)["status"]["copies"][0]["copy"] for name in ("first", "second")}
            assert read == {"0", "1"}
            for name in ("first", "second"):
                jobs.kube.delete("TrainingJob", name, namespace=jobs.namespace)
            jobs.wait(lambda: copies(jobs) == (1, 1), deadline=2 * BAR_SECONDS)
        finally:
            keda.stop()
