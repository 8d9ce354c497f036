"""Weight stashing: the versions of a stage's weights that mini-batches in flight still need.

A backward uses the weights of its own forward; the step applies to the newest ones (PipeDream, SOSP'19, section 3.3):

    w(t+1) = w(t) - learning rate x gradient of f at w_1(t-n+1), w_2(t-n+2), ..., w_n(t)

Weights lie in slots. A step writes the next version into the slot of a version that nothing needs any more, so a
stage holds warm-up + 1 versions and never more. Running statistics (buffers) are not stashed.
"""

from collections.abc import Callable, Mapping

import torch
from torch import nn


class WeightVersions:
    """The versions of some parameters. The parameters themselves always are the newest version."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._newest = 0
        self._free: list[dict[str, torch.Tensor]] = []
        self._held: dict[int, dict[str, torch.Tensor]] = {0: self._leaves()}
        self.most_held = 1
        """The most versions that were held at a time."""

    @property
    def newest(self) -> int:
        """The number of steps done."""
        return self._newest

    @property
    def held(self) -> int:
        """The versions that are held."""
        return len(self._held)

    @property
    def bytes_held(self) -> int:
        """Bytes of all slots."""
        slots = [*self._held.values(), *self._free]
        return sum(tensor.numel() * tensor.element_size() for slot in slots for tensor in slot.values())

    def at(self, version: int) -> Mapping[str, torch.Tensor]:
        """The weights of a version, as leaves of autograd by name; they must not be changed."""
        return self._held[version]

    def advance(self, step: Callable[[], None], *, needed_from: int) -> None:
        """Makes the next version by `step`, which changes the parameters in place.

        Versions before `needed_from` are dropped.
        """
        for version in [version for version in self._held if version < needed_from]:
            self._free.append(self._held.pop(version))
        if self._newest in self._held:
            slot = self._free.pop() if self._free else {}
            for name, parameter in self._parameters.items():
                if name in slot:
                    slot[name].data.copy_(parameter.data)
                else:
                    slot[name] = parameter.data.clone()
                parameter.data = slot[name].data
        step()
        self._newest += 1
        self._held[self._newest] = self._leaves()
        self.most_held = max(self.most_held, len(self._held))
        self._free.clear()

    def reset(self, steps: int) -> None:
        """Drops all versions and takes up parameters that were changed from outside, after a number of steps."""
        self._free.clear()
        self._newest = steps
        self._held = {steps: self._leaves()}

    def _leaves(self) -> dict[str, torch.Tensor]:
        # `.data` and not `.detach()`: autograd's count of changes must not be shared with the parameter, which is
        # changed in place later, on other memory
        return {
            name: parameter.data.requires_grad_(parameter.requires_grad)
            for name, parameter in self._parameters.items()
        }
