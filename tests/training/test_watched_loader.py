"""PyTorch's own DataLoader, watched."""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from tdcs_train.loader import watch


class Slow(Dataset):
    """Samples that take some time each."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.full((3,), float(place))


def test_a_data_loader_gives_the_same_batches_and_its_waits_are_counted() -> None:
    for workers in (0, 2):
        loader = DataLoader(Slow(), batch_size=2, num_workers=workers, generator=torch.Generator())
        watched = watch(loader)
        for epoch in (1, 2):
            batches = torch.cat(list(watched))
            assert torch.equal(batches[:, 0], torch.arange(8.0)), epoch
        assert watched.dataset is loader.dataset
        assert len(watched) == 4
        # Two processes at most make sixteen samples.
        assert watched.waits.waited_seconds > 0.1
        assert watched.waits.seconds >= watched.waits.waited_seconds
