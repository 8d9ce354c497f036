"""Images from the bytes of their files."""

import io
from typing import Any

import numpy
from numpy.typing import NDArray

from tdcs_train.errors import InputError


def decode_image(content: memoryview, target: NDArray[Any], *, path: str) -> None:
    """Decode a JPEG or PNG file and resize it to the target, bytes of shape (height, width, channels of 1 or 3).

    Raises:
        InputError: It is no image.
    """
    from PIL import Image, UnidentifiedImageError

    height, width, channels = target.shape
    mode = "L" if channels == 1 else "RGB"
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.draft(mode, (width, height))
            converted = image if image.mode == mode else image.convert(mode)
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            numpy.copyto(target, numpy.asarray(converted).reshape(target.shape))
    except UnidentifiedImageError as error:  # its text is of the object that holds the bytes
        raise InputError(f"{path} is no image that can be decoded: its format is not known") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path} is no image that can be decoded: {error}") from error
