"""Networks for images, as their papers and libraries write them, in small."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


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
        skip = torch.relu(self.down1(x))
        two = torch.relu(self.down2(functional.max_pool2d(skip, 2)))
        up = self.up(two)
        if up.shape[-2:] != skip.shape[-2:]:
            up = functional.interpolate(up, size=skip.shape[-2:])
        high, wide = skip.size(2) - up.size(2), skip.size(3) - up.size(3)
        up = functional.pad(up, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return self.out_conv(torch.cat([skip, up], dim=1))


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
