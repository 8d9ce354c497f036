"""Models as people write them: each with mini-batches and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tests.training.model.image_models import (
    DenseNet,
    MobileNet,
    ResNet,
    UNet,
    Vgg,
    VisionTransformer,
)
from tests.training.model.kept_models import (
    AsksForGradients,
    CatchesAll,
    ChangesOwnBuffer,
    CheckpointOfTwo,
    Fused,
    Hooked,
    HookedParameter,
    Moving,
    OfDevice,
    SaysItsSize,
    TiedByData,
    Underscored,
    WithLoss,
)
from tests.training.model.odd_models import (
    Adversarial,
    Autocast,
    AutoEncoder,
    Branching,
    Checkpointed,
    DropsOut,
    FrozenBackbone,
    InPlace,
    MadeInForward,
    MappedDefault,
    MappedModule,
    MappedOverRows,
    MixtureOfExperts,
    OfConstants,
    ReturnsCache,
    RoutedByData,
    RoutedByHash,
    Siamese,
    StochasticDepth,
    TwoTower,
    Unused,
    WideAndDeep,
)
from tests.training.model.text_models import Albert, Bert, Gpt, LastState, Tagger, Unrolled
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Case:
    """A model, its mini-batches (inputs and labels) and its loss; `refused` is in the sentence that refuses it."""

    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Any, Any]]
    loss: Callable[[Any, Any], torch.Tensor]
    refused: str = ""


def classes(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, labels)


def words(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), labels.flatten())


def images(source: torch.Generator) -> tuple[Any, Any]:
    return torch.randn(4, 3, 16, 16, generator=source), torch.randint(5, (4,), generator=source)


def rows(source: torch.Generator) -> tuple[Any, Any]:
    return torch.randn(4, 8, generator=source), torch.randint(5, (4,), generator=source)


def sequences(source: torch.Generator) -> tuple[Any, Any]:
    return torch.randn(4, 6, 8, generator=source), torch.randint(5, (4,), generator=source)


def sentences(source: torch.Generator) -> tuple[Any, Any]:
    text = torch.randint(20, (4, 9), generator=source)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def pixels(source: torch.Generator) -> tuple[Any, Any]:
    return torch.randn(2, 3, 9, 9, generator=source), torch.randint(5, (2, 9, 9), generator=source)


def masked_sentences(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text, "attention_mask": torch.ones_like(text)}, labels


def of_logits(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return words(output["logits"], labels) + 0.01 * output["last_hidden_state"].pow(2).mean()


def pairs(source: torch.Generator) -> tuple[Any, Any]:
    return (torch.randn(4, 8, generator=source), torch.randn(4, 4, generator=source)), torch.arange(4)


def twins(source: torch.Generator) -> tuple[Any, Any]:
    return (torch.randn(4, 8, generator=source), torch.randn(4, 8, generator=source)), torch.arange(4)


def of_two(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[0], labels) + functional.cross_entropy(output[1], labels % 2)


def table_rows(source: torch.Generator) -> tuple[Any, Any]:
    columns = torch.randint(7, (4, 3), generator=source)
    return (columns, torch.randn(4, 8, generator=source)), torch.randint(5, (4,), generator=source)


def labelled_sentences(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text, "labels": labels}, labels


def elbo(output: Any, labels: torch.Tensor) -> torch.Tensor:
    out, mu, logvar = output
    return out.pow(2).mean() - 0.1 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()


ZOO: dict[str, Case] = {
    "VGG": Case(Vgg, images, classes),
    "ResNet": Case(ResNet, images, classes),
    "MobileNet": Case(MobileNet, images, classes),
    "DenseNet": Case(DenseNet, images, classes),
    "U-Net": Case(UNet, pixels, classes),
    "vision transformer": Case(VisionTransformer, images, classes),
    "LSTM tagger": Case(Tagger, sentences, words),
    "last state of an LSTM": Case(LastState, sequences, classes),
    "cell in a loop": Case(Unrolled, sequences, classes),
    "GPT": Case(Gpt, sentences, lambda output, labels: words(output[0], labels)),
    "GPT with tied weights": Case(
        lambda: Gpt(tied=True), sentences, lambda output, labels: words(output[0], labels)
    ),
    "BERT": Case(Bert, masked_sentences, of_logits),
    "ALBERT": Case(Albert, sentences, words),
    "two towers": Case(TwoTower, pairs, classes),
    "one tower twice": Case(Siamese, twins, classes),
    "mixture of experts": Case(MixtureOfExperts, sequences, classes),
    "experts by position": Case(RoutedByHash, sequences, classes),
    "experts by data": Case(RoutedByData, rows, classes),
    "branch on data": Case(Branching, rows, classes, refused="if x.mean() > 0"),
    "checkpoints": Case(lambda: Checkpointed(reentrant=False).eval(), rows, classes),
    "reentrant checkpoints": Case(lambda: Checkpointed(reentrant=True).eval(), rows, classes),
    "autocast": Case(Autocast, rows, classes),
    "no_grad": Case(FrozenBackbone, rows, classes),
    "reversed gradient": Case(Adversarial, rows, of_two),
    "unused layers": Case(Unused, rows, classes),
    "in place": Case(InPlace, rows, classes),
    "stochastic depth": Case(lambda: StochasticDepth().eval(), rows, classes),
    "wide and deep": Case(WideAndDeep, table_rows, classes),
    "autoencoder": Case(AutoEncoder, rows, elbo),
    "loss in a table of its own": Case(WithLoss, labelled_sentences, lambda output, labels: output.loss),
    "numbers in the output": Case(
        SaysItsSize, rows, lambda output, labels: classes(output["logits"], labels)
    ),
    "names with underscores": Case(Underscored, rows, classes),
    "buffer added to": Case(lambda: Moving(copied=False), rows, classes),
    "buffer copied to": Case(lambda: Moving(copied=True), rows, classes),
    "checkpoint of two values": Case(CheckpointOfTwo, rows, classes),
    "functions of compilers": Case(Fused, rows, classes),
    "hooks": Case(Hooked, rows, classes),
    "autocast of the device": Case(OfDevice, rows, classes),
    "spectral norm": Case(
        lambda: nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
            nn.ReLU(),
            nn.utils.spectral_norm(nn.Linear(8, 8)),
            nn.ReLU(),
            nn.Linear(8, 5),
        ),
        rows,
        classes,
    ),
    "module made in forward": Case(MadeInForward, rows, classes),
    "parameters made in forward": Case(
        lambda: MadeInForward(nn.Linear, 8, 8), rows, classes, refused="makes a Linear with parameters"
    ),
    "vmap": Case(MappedOverRows, rows, classes),
    "vmap of a module": Case(
        MappedModule, rows, classes, refused="a function that has a MappedModule from outside"
    ),
    "vmap with a default": Case(
        MappedDefault, rows, classes, refused="a function that has a default of an argument from outside"
    ),
    "cache in the output": Case(
        ReturnsCache, rows, of_two, refused="a Cache is passed on, and a graph has tensors"
    ),
    "inputs in a table of an input": Case(
        Unused,
        lambda source: ({"x": {"values": rows(source)[0]}}, None),
        classes,
        refused="the input x of a mini-",
    ),
    "inputs in a list": Case(
        Unused,
        lambda source: ([rows(source)[0]], None),
        classes,
        refused="mini-batch is a list; the inputs are",
    ),
    "lazy layers": Case(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LazyLinear(5)),
        rows,
        classes,
        refused="1.weight has no shape yet",
    ),
    "constants": Case(OfConstants, rows, classes),
    "dropout in evaluation": Case(lambda: DropsOut().eval(), rows, classes),
    "hook of a parameter": Case(
        HookedParameter, rows, classes, refused="first.weight has a hook on its gradient"
    ),
    "errors caught": Case(CatchesAll, rows, classes, refused="mean() > 0 depends on the data"),
    "asks for gradients": Case(AsksForGradients, rows, classes, refused="only a run knows"),
    "tied by data": Case(
        TiedByData, rows, classes, refused="have the same memory without being one parameter"
    ),
    "own buffer changed": Case(ChangesOwnBuffer, rows, classes, refused="changes the buffer seen in place"),
    "scripted": Case(
        lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 5))),
        rows,
        classes,
        refused="is compiled (torch.jit)",
    ),
    "compiled": Case(lambda: torch.compile(ResNet()), images, classes),  # type: ignore[arg-type, return-value, unused-ignore]
    "exported": Case(
        lambda: torch.export.export(Gpt(), (torch.zeros(4, 8, dtype=torch.long),)),  # type: ignore[arg-type, return-value, unused-ignore]
        sentences,
        lambda output, labels: words(output[0], labels),
    ),
}
