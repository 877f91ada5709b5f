"""A network of `torchlgm.baselines` in the words of graphs: the same layers and connections, a weight for each edge."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from torchlgm.baselines import FillMissing, LocallyConnected2d
from torchlgm.errors import InferenceError

_ACTIVATIONS = {nn.Sigmoid: "sigmoid", nn.ReLU: "relu"}


def describe_network(network: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Layers with their shape, connection and activation, and the weights and biases of each by "weight.i", "bias.i".

    Weights are shaped as tables of a connection from the layer before to it, biases as its channels or nodes.
    """
    layers: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    padding, mask = (0, 0), False
    for module in network if isinstance(network, nn.Sequential) else [network]:
        if isinstance(module, FillMissing):
            channels, *size = module.shape if len(module.shape) == 3 else (1, *module.shape)
            layers.append({"shape": [channels * (2 if module.mask_channel else 1), *size]})
            mask = module.mask_channel
        elif isinstance(module, nn.ZeroPad2d):
            padding = module.padding[0], module.padding[1]
        elif type(module) in _ACTIVATIONS:
            layers[-1]["activation"] = _ACTIVATIONS[type(module)]
        elif isinstance(module, nn.Conv2d | LocallyConnected2d):
            words, weight, bias = _windowed(module, layers[-1]["shape"], padding)
            tensors |= {f"weight.{len(layers)}": weight, f"bias.{len(layers)}": bias}
            layers.append(words)
            padding = (0, 0)
        elif isinstance(module, nn.Linear):
            tensors |= {f"weight.{len(layers)}": module.weight.T, f"bias.{len(layers)}": module.bias}
            layers.append({"shape": [module.out_features], "type": "dense"})
        elif not isinstance(module, nn.Flatten):
            raise InferenceError(
                f"a network with {type(module).__name__} cannot be exported; expected one of torchlgm.baselines.network"
            )
    if not layers or "type" in layers[0]:
        raise InferenceError("this network cannot be exported; expected one of torchlgm.baselines.network")
    return {"layers": layers, "mask": mask}, {name: t.detach() for name, t in tensors.items()}


def _windowed(
    module: nn.Conv2d | LocallyConnected2d, shape: list[int], padding: tuple[int, int]
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """A window connection, its weights `(in, out, kernel, kernel[, height, width])`, and its biases."""
    channels, before = shape[0], padding
    if isinstance(module, nn.Conv2d):
        kernel, stride = int(module.kernel_size[0]), int(module.stride[0])
        size = [(n + sum(before) - kernel) // stride + 1 for n in shape[1:]]
        weight, bias, kind = module.weight.transpose(0, 1), module.bias, "conv"
        assert bias is not None
    else:
        kernel, stride, size = module.kernel, module.stride, list(module.output_size)
        positions, out, _ = module.weight.shape  # (positions, out, in * kernel * kernel)
        weight = module.weight.reshape(positions, out, channels, kernel, kernel).permute(2, 1, 3, 4, 0)
        weight, bias, kind = weight.unflatten(-1, size), module.bias, "local"
    words = {"type": kind, "kernel": kernel, "stride": stride, "padding": [list(before), list(before)]}
    return {"shape": [int(bias.shape[0]), *size], **words}, weight, bias
