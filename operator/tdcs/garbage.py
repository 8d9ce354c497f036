"""How Python's garbage collector is kept from holding up an event loop."""

import gc

YOUNG_OBJECTS = 5_000
YOUNGER = 20
OLDER = 100


def spare_lasting_objects() -> None:
    """Leave out of all collections from now on what exists now, and collect less often.

    A full collection visits every object in one go: with the modules of the API server's client alone it holds the
    event loop for some 100 ms. What is frozen is still freed when nothing refers to it; only cycles in it stay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNGER, OLDER)
