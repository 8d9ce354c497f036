"""Errors about a model and about a plan for it."""

from tdcs_train.errors import InputError


class ModelError(InputError):
    """A model that cannot be traced, measured or cut as asked."""


class PlanError(InputError):
    """A plan that does not fit the model, the number of workers or the number of batches."""
