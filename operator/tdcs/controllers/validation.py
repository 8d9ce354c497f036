"""Sentences for objects that do not parse, although the API server accepted them (an older CRD, say)."""

from pydantic import ValidationError


def explain_invalid(error: ValidationError) -> str:
    """Which fields are wrong and why, with what to do."""
    parts = [
        # pydantic goes on with the name of a class, which says nothing to people.
        f"{'.'.join(str(step) for step in found['loc'])}: {found['msg'].partition(' or instance of ')[0]}"
        for found in error.errors()[:5]
    ]
    return (
        f"the object cannot be understood ({'; '.join(parts)}): correct these fields, and check that the "
        "installed CustomResourceDefinitions are of the operator's version (tdcs crds)"
    )
