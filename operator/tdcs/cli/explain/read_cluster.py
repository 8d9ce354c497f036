"""Reads all of a cluster that the operator's decisions depend on, as far as its user may."""

import click

from tdcs.cli.explain.operator_settings import read_settings
from tdcs.cli.explain.planned_world import NEEDED, READ, PlanWorld, operator_namespace
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError, NotFoundError
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS


async def read_world(api: KubeApi, job: Object, *, now: str = "") -> PlanWorld:
    """Everything that the user may list.

    Raises:
        click.ClickException: not even Datasets and TrainingJobs of the job's namespace may be listed.
    """
    namespace = job["metadata"]["namespace"]
    objects: dict[str, list[Object]] = {}
    hidden, partly = set(), set()
    for resource in READ:
        try:
            objects[resource.plural] = (await api.list(resource)).items
            continue
        except ForbiddenError as error:
            refused = error
        except NotFoundError:
            if resource.plural in NEEDED:
                raise
            continue
        try:
            if not resource.namespaced:
                raise refused
            objects[resource.plural] = (await api.list(resource, namespace=namespace)).items
            partly.add(resource.plural)
        except ForbiddenError as error:
            if resource.plural in NEEDED:
                raise click.ClickException(
                    f"{error}; without it nothing can be planned: ask for the right to list "
                    f"{resource.plural}.{resource.group} in namespace {namespace}"
                ) from error
            hidden.add(resource.plural)
    where = operator_namespace(objects.get(CACHE_CLUSTERS.plural, ()))
    return PlanWorld(
        job=job,
        now=now or utc_now(),
        objects=objects,
        hidden=frozenset(hidden),
        partly=frozenset(partly),
        operator=await read_settings(api, namespace=where),
    )
