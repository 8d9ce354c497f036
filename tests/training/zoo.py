"""Models as people write them: each with mini-batches and a loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


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


class Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)


class BasicBlock(nn.Module):
    def __init__(self, width: int, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(8), BasicBlock(8, nn.Conv2d(8, 8, 1)))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer1(self.conv1(x))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class InvertedResidual(nn.Module):
    def __init__(self, width: int, skips: bool) -> None:
        super().__init__()
        self.use_res_connect = skips
        self.conv = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU6(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width, bias=False),
            nn.ReLU6(inplace=True),
            nn.Conv2d(2 * width, width, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*(InvertedResidual(8, skips) for skips in (False, True, True)))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean([2, 3]))


class DenseNet(nn.Module):
    """Concatenates what all layers before have made, and asks whether it was given a tensor or a list."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(width, 4, 3, padding=1)

        def forward(self, given: Any) -> torch.Tensor:
            features = [given] if isinstance(given, torch.Tensor) else given
            return torch.relu(self.conv(torch.cat(features, 1)))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseNet.Layer(3 + 4 * number) for number in range(3))
        self.head = nn.Linear(15, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for number, layer in enumerate(self.layers):
            features.append(layer(features[0] if number == 0 else features))
        return self.head(torch.cat(features, 1).mean((2, 3)))


class UNet(nn.Module):
    """Skips from each level down to the same level up; resizes where the shapes differ."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out_conv = nn.Conv2d(8, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = torch.relu(self.down1(x))
        two = torch.relu(self.down2(functional.max_pool2d(one, 2)))
        up = self.up(two)
        if up.shape[-2:] != one.shape[-2:]:
            up = functional.interpolate(up, size=one.shape[-2:])
        high, wide = one.size(2) - up.size(2), one.size(3) - up.size(3)
        up = functional.pad(up, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return self.out_conv(torch.cat([one, up], dim=1))


def pixels(source: torch.Generator) -> tuple[Any, Any]:
    return torch.randn(2, 3, 9, 9, generator=source), torch.randint(5, (2, 9, 9), generator=source)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.hidden2tag = nn.Linear(16, 20)

    def forward(self, sentence: torch.Tensor) -> torch.Tensor:
        embeds = self.word_embeddings(sentence)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out)


class LastState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True)
        self.second = nn.LSTM(8, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (h, c) = self.lstm(x)
        out, (h, c) = self.second(out, (h, c))
        return self.head(h[-1])


class Unrolled(nn.Module):
    """A cell in a loop over time, with a state that is made from the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.size(0), 8, device=x.device)
        for step in range(x.size(1)):
            state = self.cell(x[:, step], state)
        return self.head(state)


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int = 8, heads: int = 2, size: int = 16) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n_head, self.n_embd, self.dropout = heads, width, 0.0
        self.register_buffer("bias", torch.tril(torch.ones(size, size)).view(1, 1, size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = functional.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return functional.dropout(self.c_proj(y), self.dropout, self.training)


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attn = CausalSelfAttention()
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(8, 16), "act": nn.GELU(), "c_proj": nn.Linear(16, 8)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.c_proj(m.act(m.c_fc(self.ln_2(x))))  # type: ignore[operator, union-attr, unused-ignore]


class Gpt(nn.Module):
    """As minGPT: checks the length, makes positions, returns logits and no loss; its output weights can be tied."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.block_size = 16
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(20, 8),
                "wpe": nn.Embedding(16, 8),
                "drop": nn.Dropout(0.0),
                "h": nn.ModuleList([GptBlock() for _ in range(2)]),
                "ln_f": nn.LayerNorm(8),
            }
        )
        self.lm_head = nn.Linear(8, 20, bias=False)
        if tied:
            self.lm_head.weight = self.transformer["wte"].weight  # type: ignore[assignment, unused-ignore]

    def forward(self, idx: torch.Tensor, targets: Any = None) -> Any:
        device = idx.device
        _, t = idx.size()
        assert t <= self.block_size, (
            f"Cannot forward sequence of length {t}, block size is only {self.block_size}"
        )
        pos = torch.arange(0, t, dtype=torch.long, device=device).unsqueeze(0)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        logits = self.lm_head(x)
        loss = None
        if targets is not None:
            loss = functional.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return logits, loss


class Bert(nn.Module):
    """Optional arguments as Hugging Face's, tied weights, and a result of a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings, self.position_embeddings = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.token_type_embeddings = nn.Embedding(2, 8)
        self.layer = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.decoder = nn.Linear(8, 20)
        self.decoder.weight = self.word_embeddings.weight
        self.register_buffer("position_ids", torch.arange(16).expand((1, -1)))

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        inputs_embeds: Any = None,
        return_dict: bool = True,
    ) -> Any:
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("You cannot specify both input_ids and inputs_embeds at the same time")
        seq_length = input_ids.size()[1]
        if token_type_ids is None:
            token_type_ids = torch.zeros(input_ids.shape, dtype=torch.long, device=input_ids.device)
        hidden = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        hidden = hidden + self.position_embeddings(self.position_ids[:, :seq_length])
        mask = None if attention_mask is None else attention_mask == 0
        for layer in self.layer:
            hidden = layer(hidden, src_key_padding_mask=mask)
        logits = self.decoder(hidden)
        return {"logits": logits, "last_hidden_state": hidden} if return_dict else (logits,)


def masked_sentences(source: torch.Generator) -> tuple[Any, Any]:
    text, labels = sentences(source)
    return {"input_ids": text, "attention_mask": torch.ones_like(text)}, labels


def of_logits(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return words(output["logits"], labels) + 0.01 * output["last_hidden_state"].pow(2).mean()


class TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_tower = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.item_tower = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, query_features: torch.Tensor, item_features: torch.Tensor) -> torch.Tensor:
        q = functional.normalize(self.query_tower(query_features), dim=-1)
        i = functional.normalize(self.item_tower(item_features), dim=-1)
        return q @ i.t() / 0.1


def pairs(source: torch.Generator) -> tuple[Any, Any]:
    return (torch.randn(4, 8, generator=source), torch.randn(4, 4, generator=source)), torch.arange(4)


class Siamese(nn.Module):
    """The same tower twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.tower(left) @ self.tower(right).t()


def twins(source: torch.Generator) -> tuple[Any, Any]:
    return (torch.randn(4, 8, generator=source), torch.randn(4, 8, generator=source)), torch.arange(4)


class MixtureOfExperts(nn.Module):
    """Every token goes to all experts, weighted by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(3)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = functional.softmax(self.gate(x), dim=-1)
        out = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return self.head((out * weights.unsqueeze(-2)).sum(-1).mean(1))


class RoutedByHash(nn.Module):
    """Fixed routing: the position of a token says its expert."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out[:, number::3] = expert(x[:, number::3])
        return self.head(out.mean(1))


class RoutedByData(nn.Module):
    """A module that takes another way for each token: it can only be one layer."""

    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.mean() > 0:
                return self.experts[0](x)
            return self.experts[1](x)

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.router, self.outlet = nn.Linear(8, 8), RoutedByData.Router(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outlet(torch.relu(self.router(torch.relu(self.inlet(x)))))


class Branching(nn.Module):
    """The branch is in the model's own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            x = self.first(x)
        return self.second(x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(3)
        )
        self.head = nn.Linear(8, 5)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(lambda value, run=block: run(value) + value, x, use_reentrant=self.reentrant)
        return self.head(x)


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.float())


class FrozenBackbone(nn.Module):
    """Without gradients for a part, by a context and not by its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.neck, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(torch.relu(self.neck(features)))


class Reversal(torch.autograd.Function):
    """A function whose backward is not the derivative of its forward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, scale: float) -> torch.Tensor:
        context.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].neg() * context.scale, None


class Adversarial(nn.Module):
    """Two outputs, one of them behind a reversed gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.task, self.domain = nn.Linear(8, 8), nn.Linear(8, 5), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        return self.task(h), self.domain(Reversal.apply(h, 0.5))


def of_two(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[0], labels) + functional.cross_entropy(output[1], labels % 2)


class Unused(nn.Module):
    """A dead layer, a result that nobody reads, and parameters that no forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.a_layer, self.dead, self.never = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.norm_1, self.head = nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x_in: torch.Tensor, scale_by: float = 2.0, *, use_it: bool = False) -> torch.Tensor:
        count = x_in.shape[0]
        self.dead(x_in)
        h = torch.relu(self.norm_1(self.a_layer(x_in * scale_by)))
        values, _places = h.max(dim=1, keepdim=True)
        assert count > 0
        return self.head(h - values)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        y = self.b(h)
        y += h
        y[:, 0] = 0
        y.mul_(0.5)
        return self.c(torch.relu_(y))


class StochasticDepth(nn.Module):
    """Drops whole blocks by a random number that depends on no input."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and float(torch.rand(1)) < 0.5:
                return x
            return x + torch.tanh(self.layer(x))

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(StochasticDepth.Block() for _ in range(3)))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 8, 4, stride=4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.pos_embedding = nn.Parameter(torch.randn(1, 17, 8) * 0.1)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.heads = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, h, w = x.shape
        torch._assert(h == 16, f"Wrong image height! Expected 16 but got {h}!")
        x = self.conv_proj(x).reshape(n, 8, (h // 4) * (w // 4)).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1)
        return self.heads(self.encoder(x + self.pos_embedding)[:, 0])


class Albert(nn.Module):
    """One block for all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens)
        for _ in range(3):
            h = self.block(h)
        return self.head(h)


class WideAndDeep(nn.Module):
    """Categories by column, numbers beside them; written with functional calls and parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(7, 4) for _ in range(3))
        self.weight_1 = nn.Parameter(torch.randn(16, 20) * 0.2)
        self.bias_1 = nn.Parameter(torch.zeros(16))
        self.wide, self.deep = nn.Linear(8, 5), nn.Linear(16, 5)

    def forward(self, columns: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        parts = [table(columns[:, place]) for place, table in enumerate(self.tables)]
        h = functional.linear(torch.cat([*parts, numbers], dim=1), self.weight_1, self.bias_1)
        return self.wide(numbers) + self.deep(functional.leaky_relu(h, 0.1))


def table_rows(source: torch.Generator) -> tuple[Any, Any]:
    columns = torch.randint(7, (4, 3), generator=source)
    return (columns, torch.randn(4, 8, generator=source)), torch.randint(5, (4,), generator=source)


class AutoEncoder(nn.Module):
    """A variational one: noise of the shape of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mu, self.logvar = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.relu(self.encoder(x))
        mu, logvar = self.mu(h), self.logvar(h).clamp(-3, 3)
        return self.decoder(mu + 0.0 * torch.randn_like(mu) + torch.exp(0.5 * logvar)), mu, logvar


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
    "compiled": Case(lambda: torch.compile(ResNet()), images, classes),  # type: ignore[arg-type, return-value, unused-ignore]
    "exported": Case(
        lambda: torch.export.export(Gpt(), (torch.zeros(4, 8, dtype=torch.long),)),  # type: ignore[arg-type, return-value, unused-ignore]
        sentences,
        lambda output, labels: words(output[0], labels),
    ),
}
