"""A small tanh network for natural gradients: one flat parameter vector, and cheap products with the Jacobian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

Layers = list[tuple[Tensor, Tensor]]

OUTPUT_GAIN = 0.01  # of the initial weights of the last layer


@dataclass(frozen=True)
class MLP:
    """A tanh network with a linear output, whose parameters are one flat vector.

    >>> net = MLP((3, 8, 2))
    >>> theta = net.initial(np.random.default_rng(0), torch.float64)
    >>> at = net.linearise(theta, torch.ones(5, 3, dtype=torch.float64))
    >>> at.output.shape, at.vjp(at.output).shape == theta.shape
    (torch.Size([5, 2]), True)
    """

    sizes: tuple[int, ...]  # the widths of the layers, input first

    @property
    def n_parameters(self) -> int:
        """The length of the flat vector of weights and biases."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    def initial(self, rng: np.random.Generator, dtype: torch.dtype) -> Tensor:
        """Draws Glorot-uniform weights and zero biases; the last layer is small, so that the outputs begin near 0."""
        theta = torch.zeros(self.n_parameters, dtype=dtype)
        layers = self.layers(theta)
        for i, (weight, _) in enumerate(layers):
            bound = math.sqrt(6.0 / sum(weight.shape)) * (OUTPUT_GAIN if i == len(layers) - 1 else 1.0)
            weight.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(weight.shape))))
        return theta

    def layers(self, theta: Tensor) -> Layers:
        """Returns the weights (outputs x inputs) and biases of each layer, as views of the flat vector."""
        layers, at = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            end = at + fan_in * fan_out
            layers.append((theta[at:end].view(fan_out, fan_in), theta[end : end + fan_out]))
            at = end + fan_out
        return layers

    def forward(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """Returns the outputs (..., outputs) for inputs (..., inputs), differentiable by torch."""
        return forward(self.layers(theta), inputs)

    def linearise(self, theta: Tensor, inputs: Tensor) -> Linearised:
        """Evaluates the network at rows of inputs, for products with its Jacobian there."""
        layers = self.layers(theta)
        hidden = [inputs]
        for weight, bias in layers[:-1]:
            hidden.append(linear(hidden[-1], weight, bias).tanh_())
        return Linearised(self, layers, hidden, linear(hidden[-1], *layers[-1]))


def forward(layers: Layers, inputs: Tensor) -> Tensor:
    """Returns the outputs of tanh layers, followed by a linear one."""
    h = inputs
    for weight, bias in layers[:-1]:
        h = linear(h, weight, bias).tanh_()
    return linear(h, *layers[-1])


class Linearised:
    """A network at fixed parameters and inputs: its output, and products with its Jacobian J.

    J is the derivative of all outputs by all parameters. With h_l = tanh(a_l) and a_l = W_l h_{l-1} + b_l, both kinds
    of product are a few matrix products over activations that are computed once (forward and reverse mode by hand:
    Griewank & Walther 2008, chapter 3), which makes conjugate gradients cheap. Made by :meth:`MLP.linearise`.
    """

    def __init__(self, net: MLP, layers: Layers, hidden: list[Tensor], output: Tensor) -> None:
        self.output = output
        self.n_parameters = net.n_parameters
        self._net, self._layers = net, layers
        self._hidden = hidden  # h_0 (the inputs) .. h_{L-1}
        self._slopes = [torch.addcmul(h.new_ones(()), h, h, value=-1.0) for h in hidden[1:]]  # tanh' = 1 - h^2

    def every(self, k: int) -> Linearised:
        """Returns the linearisation at every k-th row."""
        if k == 1:
            return self
        hidden = [h[::k].contiguous() for h in self._hidden]
        return Linearised(self._net, self._layers, hidden, self.output[::k])

    def jvp(self, direction: Tensor) -> Tensor:
        """Returns J v: the change of the outputs when the parameters move along ``direction``."""
        moves = self._net.layers(direction)
        tangent = linear(self._hidden[0], *moves[0])  # the inputs do not move
        for i in range(1, len(moves)):
            tangent.mul_(self._slopes[i - 1])  # dh_l = tanh'(a_l) da_l
            # da_{l+1} = dW h_l + db + W dh_l
            tangent = linear(self._hidden[i], *moves[i]).addmm_(tangent, self._layers[i][0].T)
        return tangent

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Returns J^T u: the gradient, by the parameters, of the inner product of the outputs with ``cotangent``."""
        gradient = torch.empty(self._net.n_parameters, dtype=cotangent.dtype)
        slots = self._net.layers(gradient)
        u = cotangent
        for i in range(len(slots) - 1, -1, -1):
            by_weight, by_bias = slots[i]
            h = self._hidden[i]
            # Both branches compute u^T h; BLAS is several times faster with the narrow factor first.
            if u.shape[1] < h.shape[1]:
                torch.mm(u.T, h, out=by_weight)
            else:
                by_weight.copy_(torch.mm(h.T, u).T)
            torch.sum(u, dim=0, out=by_bias)
            if i:
                u = torch.mm(u, self._layers[i][0]).mul_(self._slopes[i - 1])
        return gradient
