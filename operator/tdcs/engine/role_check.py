"""Answers HTTP callers by the role in their certificates: of agents, and of the operator."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Middleware

from tdcs.trust.contexts import caller_from
from tdcs.trust.rights import may_call
from tdcs.trust.roles import Role


def check_roles(requests: Mapping[str, frozenset[Role]]) -> Middleware:
    """Refuse what the caller's role may not ask for; the connection ends, so that the next one may show another.

    Args:
        requests: who may make which request; see `tdcs.trust.rights`.
    """

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        resource = request.match_info.route.resource
        call = f"{request.method} {resource.canonical if resource is not None else request.path}"
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        caller = caller_from(certificate)
        role = caller.role_at(time.time())
        if may_call(role, call, requests=requests):
            return await handler(request)
        if role is not None:
            reason = f"the role {role} may not call {call}"
        elif certificate:
            reason = f"the certificate of the caller has ended, or names no role: {call} is refused"
        else:
            reason = f"{call} takes a certificate of the cache's authority, and none was shown"
        refusal = web.HTTPForbidden(text=f"{reason}\n")
        refusal.force_close()
        raise refusal

    return check
