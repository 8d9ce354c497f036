"""The operator's log: in JSON for programs, or in the plain lines that all processes of TDCS have."""

import logging

import kopf

from tdcs.api import names

NOISY = ("aiohttp.access", "kopf.objects", "kopf.activities")
"""Loggers of what the framework does, which says nothing new to a reader of the operator's own lines."""


def configure_log(form: str, *, verbose: bool) -> None:
    """Have each line name its logger and its level: among the keys of JSON, the logger is `logger`."""
    kopf.configure(verbose=verbose, log_format=kopf.LogFormat.JSON)
    for handler in logging.getLogger().handlers:
        if form == "json":
            handler.addFilter(_with_logger)
        else:
            handler.setFormatter(logging.Formatter(names.LOG_LINE))
    if not verbose:
        for noisy in NOISY:
            logging.getLogger(noisy).setLevel(logging.WARNING)


def _with_logger(record: logging.LogRecord) -> bool:
    """Give a record's logger as a field of its own: of its usual ones, kopf's JSON has the message only."""
    record.logger = record.name
    return True
