"""Small models of the package `transformers`, made from their configurations: nothing is downloaded."""

import importlib
from typing import Any

import torch
from tests.training.model.zoo import Case, classes, sentences, words
from torch import nn

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
"""Without dropout, as stages and one process draw other random numbers."""


def made(kind: str, config: str, **settings: Any) -> nn.Module:
    """A model of the package; imported here, as tests are skipped where it is not at hand."""
    transformers = importlib.import_module("transformers")
    model: nn.Module = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    return model


def masked(source: torch.Generator) -> tuple[Any, Any]:
    """Sentences of which some are shorter than the others, and a class of each."""
    text, _ = sentences(source)
    mask = torch.ones_like(text)
    mask[0, -3:] = 0
    return {"input_ids": text, "attention_mask": mask}, torch.randint(5, (4,), generator=source)


def continued(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text}, labels


def continued_and_masked(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text, "attention_mask": torch.ones_like(text)}, labels


def translated(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text, "attention_mask": torch.ones_like(text), "decoder_input_ids": labels}, labels


def pictures(source: torch.Generator) -> tuple[Any, Any]:
    values = torch.randn(4, 3, 16, 16, generator=source)
    return {"pixel_values": values}, torch.randint(5, (4,), generator=source)


def of_classes(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return classes(output["logits"], labels)


def of_words(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return words(output["logits"], labels)


def gpt2(**settings: Any) -> nn.Module:
    still = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 20, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return made("GPT2LMHeadModel", "GPT2Config", **sizes, **still, **settings)


def distilbert() -> nn.Module:
    sizes = {"vocab_size": 20, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "num_labels": 5}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    return made("DistilBertForSequenceClassification", "DistilBertConfig", **sizes, **still)


def t5() -> nn.Module:
    sizes = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return made("T5ForConditionalGeneration", "T5Config", **sizes, dropout_rate=0.0, use_cache=False)


def llama() -> nn.Module:
    return made("LlamaForCausalLM", "LlamaConfig", **SIZES, num_key_value_heads=1, use_cache=False)


MODELS: dict[str, Case] = {
    "BERT": Case(
        lambda: made("BertForSequenceClassification", "BertConfig", **SIZES, **STILL, num_labels=5),
        masked,
        of_classes,
    ),
    "GPT-2": Case(lambda: gpt2(use_cache=False), continued, of_words),
    "ViT": Case(
        lambda: made(
            "ViTForImageClassification",
            "ViTConfig",
            **{**SIZES, **STILL, "image_size": 16, "patch_size": 4, "num_labels": 5},
        ),
        pictures,
        of_classes,
    ),
    "Llama": Case(llama, continued, of_words),
    "Llama with a mask": Case(llama, continued_and_masked, of_words),
    "DistilBERT": Case(distilbert, masked, of_classes),
    "T5": Case(t5, translated, of_words),
}
