"""Models for tests: chains, residual blocks, and tensors that skip stages."""

import torch
from torch import nn


class SmallVgg(nn.Module):
    """Convolutions in a chain, then dense layers."""

    def __init__(self) -> None:
        super().__init__()
        widths, layers, channels = (8, 8, 16, 16), [], 3
        for number, width in enumerate(widths):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2)] if number % 2 else []
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(16 * 4 * 4, 32), nn.ReLU(inplace=True), nn.Linear(32, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.features(images)
        return self.classifier(torch.flatten(values, 1))


class Block(nn.Module):
    """A residual block with batch norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out = self.second(torch.relu(self.norm(self.first(values))))
        out += values
        return torch.relu(out)


class Residual(nn.Module):
    """Residual blocks, and a skip over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8), Block(8))
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.head = nn.Linear(8, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        stem = self.stem(images)
        values = self.blocks(stem) * self.scale + stem
        return self.head(values.mean((2, 3)))


class Translator(nn.Module):
    """An LSTM encoder-decoder with attention: what the encoder makes, and its last state, skip stages."""

    def __init__(self, words: int = 20, width: int = 16) -> None:
        super().__init__()
        self.source = nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.target = nn.Embedding(words, width)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.mix = nn.Linear(2 * width, width)
        self.words = nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.source(source))
        query, _ = self.decoder(self.target(target), state)
        weights = torch.softmax(torch.bmm(query, memory.transpose(1, 2)), dim=-1)
        context = torch.bmm(weights, memory)
        mixed = torch.tanh(self.mix(torch.cat([context, query], dim=-1)))
        return self.words(mixed)


def cross_entropy(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean over all predictions of a mini-batch."""
    return nn.functional.cross_entropy(output.flatten(0, -2), labels.flatten())


def images(batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, 16, 16, generator=source), torch.randint(10, (batch,), generator=source)


def sentences(batch: int, seed: int) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Random sentences, and the words to predict."""
    source = torch.Generator().manual_seed(seed)
    words = [torch.randint(20, (batch, 7), generator=source) for _ in range(3)]
    return (words[0], words[1]), words[2]
