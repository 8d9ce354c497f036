"""Text of sources as it is shown."""

from tdcs.model.printable_text import printable


def test_names_that_are_no_text_can_be_shown() -> None:
    assert printable("caf\udce9/a\x07b\u2028c") == "caf\\xe9/a\\x07b\\u2028c"
