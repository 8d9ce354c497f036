"""What `tdcs predict` and the simulator say of a run beforehand: from its configuration alone, no measured figure."""

import math
from collections.abc import Mapping

from tdcs.decide.job.job_scenario import parse_scenario
from tdcs.decide.job.job_time import predict
from tdcs_labs.run import simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.store import StoreLimits
from tdcs_labs.trace import TraceJob
from tdcs_labs.workload import Dataset, Kind, Model, WorkItem
from tdcs_local.experiment.plan import Configuration, Run, Setting, payload_rate

_CERTIFICATES = 0.86
"""Files a second through Alluxio's FUSE client with certificates, which the cluster has, over those without: the mean
of the 0.82 and 0.90 of docs/explanation/measurements.md. Processors were the bound there."""
READ_CPU_SECONDS: Mapping[Configuration, float] = {
    Configuration.STOCK: 0.0102 / _CERTIFICATES,
    Configuration.PRELOADED: 0.00011,
    Configuration.SHARED: 0.00011,
}
"""Processor time of reading a file of 100 KB through the cache's client, of all processes that take part.

From docs/explanation/remote-reads.md, where each was measured by itself, not in this experiment: Alluxio's tuned FUSE
client without certificates, and the overlay with all files on the node, which needs none. Jobs that read directly do so
without the cache's client.
"""


def predicted_seconds(run: Run, setting: Setting, *, cache_bytes: int) -> float:
    """What `tdcs predict` says that each job takes.

    It knows one job: jobs that read directly get a part of the link each. Jobs that read one cold cache get all of it
    together, for what one of them has read the others find; but they share the processors that its client takes.
    """
    rate = payload_rate(run.mbit)
    direct = run.configuration is Configuration.DIRECT
    reading: dict[object, object] = {}
    if not direct:
        reading = {
            "readCpuSecondsPerFile": READ_CPU_SECONDS[run.configuration],
            "cpusPerNode": setting.cpus,
            "jobsPerNode": run.jobs,
        }
    prediction = predict(
        parse_scenario(
            where=f"{run.configuration} with {run.jobs} jobs",
            values={
                **reading,
                "gpus": 1,
                "nodes": 1,
                "epochs": setting.epochs,
                "datasetBytes": setting.total_bytes,
                "cacheBytes": cache_bytes,
                "remoteBytesPerSecond": rate / run.jobs if direct else rate,
                "datasetFiles": setting.images,
                "imagesPerSecondPerGpu": setting.images / setting.compute_seconds,
            },
        )
    )
    match run.configuration:
        case Configuration.DIRECT:
            return prediction.direct.seconds
        case Configuration.STOCK:
            return prediction.cold.seconds
        case Configuration.PRELOADED:
            return prediction.preloaded.seconds
    return prediction.warm.seconds


def simulated_seconds(run: Run, setting: Setting) -> float | None:
    """What the simulator says that a job takes on average; None for what it does not model at this scale.

    It renews the state of stock Alluxio's caches every ten minutes, and has no preloading by itself. A first job long
    before loads the Dataset that the others share.
    """
    if run.configuration not in (Configuration.DIRECT, Configuration.SHARED):
        return None
    shared = run.configuration is Configuration.SHARED
    size = setting.total_bytes
    model = Model(name="fixed", kind=Kind.IMAGE, rate=size / setting.compute_seconds)
    dataset = Dataset(name="experiment", size_bytes=size, object_bytes=size / setting.images)
    submitted = [*([0.0] if shared else []), *[_LATER] * run.jobs]
    work = [
        WorkItem(
            job=TraceJob(
                submitted=time, duration=setting.epochs * setting.compute_seconds, gpus=1, tenant="one"
            ),
            model=model,
            dataset=dataset,
        )
        for time in submitted
    ]
    scenario = Scenario(
        nodes=2,
        gpus_per_node=4,
        page_cache_bytes=0.0,
        store=StoreLimits(bytes_per_second=payload_rate(run.mbit), requests_per_second=math.inf),
    )
    outcome = simulate(work=work, scenario=scenario, scheme="tdcs" if shared else "direct")
    times = outcome.completions[-run.jobs :]
    return sum(times) / len(times)


_LATER = 36_000.0
"""Seconds after which the jobs come; what the first one loaded is there."""
