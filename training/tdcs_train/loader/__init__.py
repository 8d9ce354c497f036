"""A loader of images on actors: it reads, decodes and batches in bounded memory, and says what training waits for."""

from tdcs_train.loader.decoding import decode_image
from tdcs_train.loader.files import Sample, find_images
from tdcs_train.loader.loader import Batch, Loader
from tdcs_train.loader.report import EpochReport
from tdcs_train.loader.watching import watch

__all__ = ["Batch", "EpochReport", "Loader", "Sample", "decode_image", "find_images", "watch"]
