"""Errors of other workers."""

from tdcs_train.errors import InputError


class PeerError(InputError):
    """Another worker did not come, ended, fell silent, or does not fit; the message names it."""
