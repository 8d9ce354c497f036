"""Networks for sequences and texts, as their papers and libraries write them, in small."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


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
