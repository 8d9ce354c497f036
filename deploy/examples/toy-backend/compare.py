"""Compares the toy device with TVM's own code: the results must be equal within rounding."""

import numpy as np

from tdcs_train import artifacts

random = np.random.default_rng(0)
inputs = {name: random.standard_normal((2, 6)).astype(np.float32) for name in ("a", "b")}
device = artifacts.load("compiled", model="model", prefer=["toy"])
plain = artifacts.load("plain", model="model")
for name, expected in plain.run(inputs).items():
    np.testing.assert_allclose(device.run(inputs)[name], expected, rtol=1e-5, atol=1e-6)
print(
    "equal:", ", ".join(sorted({region.backend for region in device.manifest.regions})), "and TVM's own code"
)
