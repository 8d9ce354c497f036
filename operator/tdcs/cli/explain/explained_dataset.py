"""Datasets in words: how much of them is cached and where, why no more, who uses them and when they leave."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import Condition
from tdcs.api.dataset import Copy, Dataset, DatasetStatus
from tdcs.api.sharing import PIN, TIMED, Access, Eviction
from tdcs.cli.explain import dataset_use
from tdcs.cli.explain.live_pods import pod_row
from tdcs.control.node_usage import claims_of
from tdcs.decide.cache.dataset_demand import jobs_of
from tdcs.decide.cache.grants import GrantTier
from tdcs.decide.cache.mount_standing import DatasetJobs
from tdcs.decide.job.job_phase import why_not_mounted
from tdcs.decide.place.data_location import copies_of
from tdcs.decide.place.dataset_copies import merged
from tdcs.model import slots
from tdcs.model.humanize import counted, explain_invalid, human, percent
from tdcs.model.kube_objects import Object

NAMED_JOBS = 8
"""So many jobs, and owners of pods, are named; the others are counted."""

NAMED_NODES = 8
"""Nodes of a dataset that are named, those with the most bytes."""

_SHOWN = (names.GRANTED, names.PLACED, names.LOADED, names.READY)
"""Conditions that have a line each."""


def readable(raw: Mapping[str, Object]) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The Datasets that can be understood, and of the others what is wrong."""
    parsed, broken = {}, {}
    for name, obj in raw.items():
        try:
            parsed[name] = Dataset.model_validate(obj)
        except ValidationError as error:
            broken[name] = f"{name}: {explain_invalid(error)}"
    return parsed, broken


def described(
    name: str, dataset: Dataset | None, *, reads: str | None = None, conditions_follow: bool = False
) -> str:
    """A Dataset in a line.

    Args:
        name: its name.
        dataset: as it is; None when there is none.
        reads: the copy that the job reads.
        conditions_follow: the lines after it have the messages of its conditions, so that it has their reasons only.
    """
    if dataset is None:
        return f"{name}: there is no such Dataset in the job's namespace; create it, or correct spec.datasets"
    why = why_not_mounted(dataset)
    status = dataset.status
    if status is None:
        return f"{name}: {why}"
    offered = merged(list(copies_of(dataset).values()))
    cached = offered.node_bytes if offered is not None else {}
    ranked = sorted(
        ((node, size) for node, size in cached.items() if size > 0), key=lambda item: (-item[1], item[0])
    )
    named = [f"{human(count)} on {node}" for node, count in ranked[:NAMED_NODES]]
    if len(ranked) > NAMED_NODES:
        named.append(f"less or as much on {len(ranked) - NAMED_NODES} more")
    # What is cached of the source can be there for other Datasets, or by what jobs read.
    where = ", ".join(named) or ("no copy is its own" if status.cached_bytes else "nowhere")
    cached_share = percent(status.cached_bytes, status.total_bytes)
    size = f"{human(status.total_bytes)}, {cached_share} of it cached: {where}"
    if not (status.total_bytes or status.total_files or ranked):
        size = "its size is unknown, as its source has not been listed"
    copies = [copy.id for copy in status.copies if copy.id != names.PRELOADED_COPY]
    copies_text = f"; {len(copies)} copies, the job reads copy {reads}" if len(copies) > 1 and reads else ""
    if conditions_follow:
        why = _without_messages(why, status)
    unread = f"; it cannot be read now: {why}" if why else ""
    limited = _limited(dataset, status, conditions_follow=conditions_follow)
    return f"{name}: {size}{copies_text}{limited}{unread}"


def _without_messages(why: str, status: DatasetStatus) -> str:
    """A reason without the message that one of the conditions shown below has, too."""
    messages = (
        condition.message for condition in status.conditions if condition.type in _SHOWN and condition.message
    )
    repeated = next((message for message in messages if why.endswith(f": {message}")), None)
    return why if repeated is None else why.removesuffix(f": {repeated}")


def _limited(dataset: Dataset, status: DatasetStatus, *, conditions_follow: bool) -> str:
    """Why a job may wait for a place at it, and why no more of it is cached."""
    text = ""
    if dataset.spec.access.max_concurrent_jobs:
        text += f"; {dataset_use.jobs(dataset, status)} (spec.access)"
    if status.grant is not None and status.grant.reason:
        why = next(
            (condition.message for condition in status.conditions if condition.type == names.GRANTED), ""
        )
        because = status.grant.reason if conditions_follow else f"{status.grant.reason}: {why}"
        text += f"; it may take {human(status.grant.bytes)} ({because})"
    return text


def explain_dataset(
    *,
    namespace: str,
    name: str,
    dataset: Dataset,
    jobs: Iterable[Object],
    pods: Sequence[Object] | None,
    created: str,
    now: str,
) -> list[str]:
    """The answer, in lines.

    Args:
        namespace: the Dataset's.
        name: its name.
        dataset: as it is.
        jobs: the TrainingJobs of its namespace.
        pods: those of its namespace; None when the user may not list them.
    """
    status = dataset.status or DatasetStatus()
    job_objects = {(namespace, str(job["metadata"]["name"])): job for job in jobs}
    lines = [f"Dataset {namespace}/{name}: {status.state or 'Pending'}"]
    lines.append(described(name, dataset, conditions_follow=True))
    lines += _conditions(status)
    if status.grant is not None:
        part = f"{status.grant.slots} of the {slots.SLOTS} slots, parts of about the same size, of its data"
        share = "all of its data" if status.grant.slots == slots.SLOTS else part
        lines.append(f"It may take {human(status.grant.bytes)} of the cache: {share}")
    lines += [_copy(copy, dataset.spec.access) for copy in status.copies if copy.id != names.PRELOADED_COPY]
    users = jobs_of(namespace=namespace, dataset=name, jobs=job_objects)
    lines += _jobs(users, job_objects)
    lines += _pods(pods, namespace=namespace, claim=name, in_use=status.in_use)
    return [*lines, _leaves(dataset, status, jobs=users, created=created, now=now)]


def _conditions(status: DatasetStatus) -> list[str]:
    """A line for each message, such as `Loaded=True, Ready=True: 3.0 MB of 3.0 MB on 2 nodes`: those that say the same
    are together. A reason that repeats the name of a condition that is true is left out."""
    by_message: dict[tuple[str, str, str], list[Condition]] = {}
    for condition in status.conditions:
        if condition.type in _SHOWN:
            by_message.setdefault((condition.status, condition.reason, condition.message), []).append(
                condition
            )
    lines = []
    for (truth, reason, message), conditions in by_message.items():
        types = ", ".join(f"{condition.type}={truth}" for condition in conditions)
        why = "" if truth == "True" and reason in (*_SHOWN, names.MOUNTED) else f" ({reason})"
        lines.append(f"{types}{why}: {message}" if message else f"{types}{why}")
    return lines


def _copy(copy: Copy, access: Access) -> str:
    size, coming = sum(node.bytes for node in copy.nodes), sum(node.arriving or 0 for node in copy.nodes)
    where = ", ".join(node.name for node in copy.nodes) or "no node yet"
    limit = access.max_concurrent_jobs
    places = f"; {counted(limit, 'job')} may read it at once" if limit else ""
    further = f"; {human(coming)} to come" if coming else ""
    idle = f"; idle since {copy.idle_since}, and goes after a while" if copy.idle_since else ""
    return f"Copy {copy.id}: {human(size)} on {where}{further}{places}{idle}"


def _jobs(jobs: DatasetJobs, job_objects: Mapping[tuple[str, str], Object]) -> list[str]:
    """The jobs that name it: those that were admitted, whether their pods run or not, and those that wait."""
    lines = []
    for verb, keys in (("Used by", jobs.active), ("Waited for by", jobs.waiting)):
        if keys:
            more = f" and {len(keys) - NAMED_JOBS} more" if len(keys) > NAMED_JOBS else ""
            named = ", ".join(_job(job_objects[key], key[1]) for key in keys[:NAMED_JOBS])
            lines.append(f"{verb} {named}{more}")
    return lines


def _job(job: Object, name: str) -> str:
    reason = (job.get("status") or {}).get("reason", "")
    return f"{name} ({reason})" if reason else name


def _pods(pods: Sequence[Object] | None, *, namespace: str, claim: str, in_use: bool) -> list[str]:
    """The pods that mount its claim, but for those of TrainingJobs."""
    if pods is None:
        unknown = f"Which pods mount its claim is unknown: you may not list pods in namespace {namespace}"
        return [unknown] if in_use else []
    rows = [pod_row(pod) for pod in pods if claim in claims_of(pod)]
    counts = Counter((row.owner_kind, row.owner_name) for row in rows if not (row.job or row.ended))
    named = [
        owner if kind == "Pod" else f"{count} of {kind} {owner}"
        for (kind, owner), count in sorted(counts.items())
    ]
    if not named:
        return []
    more = f" and those of {len(named) - NAMED_JOBS} more" if len(named) > NAMED_JOBS else ""
    return [f"Used by pods that mount its claim: {', '.join(named[:NAMED_JOBS])}{more}"]


def _leaves(dataset: Dataset, status: DatasetStatus, *, jobs: DatasetJobs, created: str, now: str) -> str:
    if status.state == "Deleting":
        return (
            "It is being deleted: it leaves the cache as soon as no pod uses its claim, but for what another Dataset "
            "of the same source wants"
        )
    if not status.mount_path:
        return "It is not mounted, so nothing of it is in the cache"
    if status.grant is None:
        return "What of it may be in the cache is not decided yet"
    eviction = dataset.spec.eviction
    cache_standing = dataset_use.standing_of(dataset, status, jobs=jobs, created=created, now=now)
    used = f", last used {status.last_used_time}" if status.last_used_time else ", not used yet"
    if dataset_use.has_left(status, cache_standing):
        return f"It has left the cache, and is loaded again when a job asks for it{used}"
    when = _rule(eviction)
    if dataset_use.is_kept_by_twin(status, cache_standing):
        return (
            f"It was to leave the cache {when}, but another Dataset of the same source keeps the blocks that both use: "
            f"it leaves with that one{used}"
        )
    match cache_standing.tier:
        case GrantTier.PINNED if cache_standing.unknown:
            return f"It does not leave the cache: no eviction policy {cache_standing.unknown} is installed"
        case GrantTier.PINNED if eviction.policy == PIN:
            return "It never leaves the cache (spec.eviction.policy Pin)"
        case GrantTier.PINNED:
            return f"It does not leave the cache: spec.eviction.schedule ({eviction.schedule}) never fires"
        case GrantTier.ACTIVE:
            return (
                f"It stays in the cache while it is read, and is then subject to spec.eviction: {when}{used}"
            )
        case GrantTier.WAITING:
            return f"It stays in the cache while jobs wait for it, and is then subject to spec.eviction: {when}{used}"
        case GrantTier.KEPT:
            return f"It leaves the cache {when}: in {dataset_use.spoken(cache_standing.seconds or 0.0)}{used}"
        case GrantTier.IDLE:
            return f"Idle, it leaves the cache {when}{used}"
        case GrantTier.DUE:
            return f"Its time in the cache is over: it leaves {when}{used}"


def _rule(eviction: Eviction) -> str:
    if eviction.policy == TIMED and eviction.schedule is not None:
        return f"at the times of spec.eviction.schedule ({eviction.schedule}, UTC)"
    if eviction.policy == TIMED:
        return f"{eviction.ttl} after its last use (spec.eviction.ttl)"
    return f"when others need its room, by policy {eviction.policy}"
