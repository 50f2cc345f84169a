"""Networks that predict each cell of a trip from the cells before it: a transformer, and an autoencoder.

Both take sequences of (cell, agent), two whole numbers a step, and learn by
:func:`~astray_benchmark.baselines.networks.train_to_plateau`. The loss of a step is minus its cell's log probability.
"""

from __future__ import annotations

import copy
import math
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from astray_benchmark.array_types import Array
from astray_benchmark.baselines.networks import Network, Sequences

UNKNOWN = 0  # the number of every cell that is not in the vocabulary
FEW_CELLS = 1500  # up to this number of cells, training normalises over all of them; above, over a sample
SAMPLED = 512  # cells in that sample, for each true cell of a training step
UNEVEN = 0.1  # the paper's weight of the term for components that are used unevenly
AT_ONCE = 4_000_000  # the most probabilities in memory at once


class CellTable(nn.Module):
    """An embedding of each cell, used to read it and (with a bias) to predict it."""

    frequency: Tensor

    def __init__(self, n_cells: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(n_cells, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(n_cells))
        self.register_buffer("frequency", torch.ones(n_cells))

    def grow(self, n_cells: int, counts: Array) -> None:
        """Adds cells with random embeddings; ``counts`` is the number of times each occurs in the next training set."""
        fresh = n_cells - len(self.bias)
        width = self.embedding.shape[1]
        rows = torch.randn(fresh, width) / math.sqrt(width)
        self.embedding = nn.Parameter(torch.cat([self.embedding.detach(), rows]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), torch.zeros(fresh)]))
        self.frequency = torch.from_numpy(counts.astype(np.float32)) + 1.0

    def surprise(self, state: Tensor, cell: Tensor) -> Tensor:
        """Returns minus the log probability of cells (n) after states (n, width).

        In training with many cells it is an estimate, the sampled softmax (Jean et al. 2015): cells drawn by their
        frequency represent all others. There are assumed to be as many unknown cells as known ones.
        """
        unknown = (cell == UNKNOWN) * math.log(len(self.bias))
        if self.training and len(self.bias) > FEW_CELLS:
            return self._sampled(state, cell) + unknown
        size = max(1, AT_ONCE // len(self.bias))
        parts = [
            F.cross_entropy(state[i : i + size] @ self.embedding.T + self.bias, cell[i : i + size], reduction="none")
            for i in range(0, len(cell), size)
        ]
        return (torch.cat(parts) if parts else state.new_zeros(0)) + unknown

    def _sampled(self, state: Tensor, cell: Tensor) -> Tensor:
        drawn = torch.multinomial(self.frequency, SAMPLED, replacement=True)
        expected = torch.log(SAMPLED * self.frequency / self.frequency.sum())
        true = (state * self.embedding[cell]).sum(dim=1) + self.bias[cell]
        others = state @ self.embedding[drawn].T + (self.bias - expected)[drawn]
        others = others.masked_fill(drawn == cell[:, None], -math.inf)
        return torch.logsumexp(torch.cat([true[:, None], others], dim=1), dim=1) - true


class CellNetwork(Network):
    """A network with a table of cells."""

    table: CellTable

    def grown(self, n_cells: int, counts: Array) -> Self:
        """Returns a copy with further cells."""
        further = copy.deepcopy(self)
        further.table.grow(n_cells, counts)
        return further


def _known(rows: Array) -> Tensor:
    return torch.from_numpy(rows >= 0)


class Block(nn.Module):
    """A layer of a transformer: attention to earlier positions, then a network on each position alone.

    There is no dropout in the attention, because it would prevent the fast kernels, nor between the two layers of the
    network, because drawing it would take most of the time.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attended = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the states (sequences, places, width) after this layer."""
        n, length, width = x.shape
        query, key, value = self.attended(self.norms[0](x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
        x = x + self.dropout(self.joined(seen.reshape(n, length, width)))
        after: Tensor = x + self.dropout(self.network(self.norms[1](x)))
        return after


class Transformer(CellNetwork):
    """A causal transformer that predicts each cell from the agent, which is the first token, and the cells before.

    ``longest`` is the length of the longest sequence. The feed-forward layers are four times as wide as ``width``.
    """

    def __init__(
        self, n_cells: int, n_agents: int, longest: int, width: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.table = CellTable(n_cells, width)
        self.agents = nn.Embedding(n_agents, width)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        self.layers = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)), nn.LayerNorm(width))

    def losses(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """See :class:`~astray_benchmark.baselines.networks.Network`."""
        cell, agent = x[..., 0], x[:, :1, 1]
        given = torch.cat([self.agents(agent), self.table.embedding[cell[:, :-1]]], dim=1)
        state = self.layers(given + self.places[: x.shape[1]])
        known = _known(rows)
        return self.table.surprise(state[known], cell[known])

    @torch.no_grad()
    def new_agent(self, number: int) -> None:
        """Sets the embedding of an unknown agent to the mean of the others."""
        others = [i for i in range(self.agents.num_embeddings) if i != number]
        if others:
            self.agents.weight[number] = self.agents.weight[others].mean(dim=0)


class MixtureAutoencoder(CellNetwork):
    """A variational autoencoder of sequences; its prior is a mixture of Gaussians, one for each kind of route.

    One GRU encodes the cells into q(z | trip); another decodes them from z, each cell from those before it. The loss is
    the evidence bound with the terms and weights in the code of Liu et al. (2020): the mean surprise of a cell; the
    distance of q(z | trip) from the components, as a mean over dimensions divided by their number; and a tenth of the
    unevenness with which components are used. All components have variance 1. ``code`` is the dimension of z.
    """

    def __init__(self, n_cells: int, width: int, hidden: int, code: int, components: int) -> None:
        super().__init__()
        self.table = CellTable(n_cells, width)
        self.encoder = nn.GRU(width, hidden, batch_first=True)
        self.mean, self.log_variance = nn.Linear(hidden, code), nn.Linear(hidden, code)
        self.begin = nn.Linear(code, hidden)
        self.decoder = nn.GRU(width, hidden, batch_first=True)
        self.output = nn.Linear(hidden, width)
        self.start = nn.Parameter(torch.zeros(width))
        self.centres = nn.Parameter(torch.randn(components, code))
        self.plain = True  # a plain autoencoder, until there are components

    def losses(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """Returns each step's surprise given z, and the other terms of the bound; see the class."""
        cell, known = x[..., 0], _known(rows)
        mean, log_variance = self._read(cell, lengths)
        noise = torch.randn_like(mean) if self.training and not self.plain else torch.zeros_like(mean)
        z = mean + noise * torch.exp(0.5 * log_variance)
        surprise = self._written(z, cell, known)
        if self.plain:
            return surprise
        return surprise + self._far_from_prior(z, mean, log_variance)[:, None].expand_as(cell)[known]

    def best_component(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """Returns the surprise of each step, given the component that explains the trip best."""
        cell, known = x[..., 0], _known(rows)
        trip = torch.arange(len(x))[:, None].expand_as(cell)[known]
        found = torch.stack([self._written(c.expand(len(x), -1), cell, known) for c in self.centres])
        total = torch.zeros(len(self.centres), len(x)).index_add_(1, trip, found)
        return found[total.argmin(dim=0)[trip], torch.arange(len(trip))]

    def place(self, centres: Array) -> None:
        """Sets the centres of the components, which the loss uses from now on."""
        self.centres = nn.Parameter(torch.from_numpy(centres.astype(np.float32)))
        self.plain = False

    def codes(self, sequences: Sequences) -> Array:
        """Returns the mean of q(z | trip) of every sequence."""
        self.eval()
        with torch.no_grad():
            batches = np.array_split(np.arange(len(sequences)), max(1, len(sequences) // 64))
            found = [self._read(x[..., 0], n)[0] for x, n, _ in map(sequences.padded, batches)]
        return torch.cat(found).numpy()

    def _read(self, cell: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        read, _ = self.encoder(self.table.embedding[cell])
        last = read[torch.arange(len(cell)), lengths - 1]
        return self.mean(last), self.log_variance(last)

    def _written(self, z: Tensor, cell: Tensor, known: Tensor) -> Tensor:
        start = self.start.expand(len(cell), 1, -1)
        given = torch.cat([start, self.table.embedding[cell[:, :-1]]], dim=1)
        state, _ = self.decoder(given, torch.tanh(self.begin(z))[None].contiguous())
        return self.table.surprise(self.output(state[known]), cell[known])

    def _far_from_prior(self, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        away = (mean[:, None] - self.centres).square().mean(dim=2)
        share = torch.softmax(-0.5 * (z[:, None] - self.centres).square().sum(dim=2), dim=1)  # q(c | trip)
        gaussian = 0.5 * ((share * away).sum(dim=1) + (log_variance.exp() - log_variance - 1.0).mean(dim=1))
        used = share.mean(dim=0)  # the share of each component in these trips
        uneven = (used * torch.log(used + 1e-10)).sum() + math.log(len(self.centres))
        return gaussian / z.shape[1] + UNEVEN * uneven


class Generation(Network):
    """Scores trips by their probability if a mixture autoencoder generates them from a component."""

    def __init__(self, network: MixtureAutoencoder) -> None:
        super().__init__()
        self.network = network

    def losses(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """See :meth:`MixtureAutoencoder.best_component`."""
        return self.network.best_component(x, lengths, rows)
