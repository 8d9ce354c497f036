"""Rights that the chart grants, compared with those that TDCS's programs used in the tiers with an API server.

* ``comparison``: what is said of granted rights, used rights and refused requests. Pure.
* ``granted``: the chart's Roles and ClusterRoles, by account.
* ``exceptions``: rights that are granted without use, and refusals that tests expect, each with its reason.
* ``records``: what a tier used, in a file for the comparison at the end of the run.

``python -m tests.support.rights`` is what `tests/tiers.py` calls: `cluster` records what was used on the local cluster,
`compare` prints what is unexplained.
"""
