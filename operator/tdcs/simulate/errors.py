"""What a user can get wrong, said in one sentence that names the place."""


class InputError(Exception):
    """A file or an option that the simulator cannot use.

    The message names the file and the row or key, what is wrong with it, and what to do.
    """
