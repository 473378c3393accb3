"""The decoder of a language model, read from bottom to top like the figure:

ids -> embedding -> [ x + attention(norm(x)) ; x + mlp(norm(x)) ] * num_layers -> norm -> head -> logits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from ramet.batch import ForwardBatch
from ramet.layers.activation import GATED_ACTIVATIONS
from ramet.layers.embedding import Embedding
from ramet.layers.linear import Linear
from ramet.layers.norm import RMSNorm
from ramet.layers.placement import Place, Places, Storage
from ramet.layers.rotary import Rotary
from ramet.models.config import ModelConfig

Tables = tuple[Tensor, Tensor]


class Attention:
    """Queries, keys and values from one matrix; keys and values are stored in the pool before anyone reads them."""

    def __init__(self, config: ModelConfig, window: int | None, rotary: Rotary, storage: Storage) -> None:
        names, flags, head_dim = config.names, config.flags, config.head_dim
        q_rows, kv_rows = config.num_heads * head_dim, config.num_kv_heads * head_dim
        parts = {names["q"]: q_rows, names["k"]: kv_rows, names["v"]: kv_rows}
        self.qkv = Linear(config.hidden_size, parts, has_bias=flags.has_qkv_bias, storage=storage)
        self.o = Linear(q_rows, {names["o"]: config.hidden_size}, has_bias=flags.has_o_bias, storage=storage)
        self.q_norm = RMSNorm(head_dim, config.norm_eps, storage) if flags.has_qk_norm else None
        self.k_norm = RMSNorm(head_dim, config.norm_eps, storage) if flags.has_qk_norm else None
        self._names = names
        self._window = window
        self._rotary = rotary
        self._num_heads, self._num_rotated = config.num_heads, config.num_heads + config.num_kv_heads
        self._head_shape = (-1, config.num_heads + 2 * config.num_kv_heads, head_dim)

    def places(self) -> Places:
        norms = ((self._names["q_norm"], self.q_norm), (self._names["k_norm"], self.k_norm))
        below = {name: norm.places() for name, norm in norms if norm is not None}
        return {**self.qkv.places(), **self.o.places(), **_named(below)}

    def __call__(self, x: Tensor, batch: ForwardBatch, tables: Tables, kv: Tensor) -> Tensor:
        heads = self.qkv(x).view(self._head_shape)
        query_key, query = heads[:, : self._num_rotated], heads[:, : self._num_heads]
        if self.q_norm is not None and self.k_norm is not None:
            key = heads[:, self._num_heads : self._num_rotated]
            query.copy_(self.q_norm(query))
            key.copy_(self.k_norm(key))
        self._rotary.rotate_(query_key, tables)
        kv.index_copy_(0, batch.slots, heads[:, self._num_heads :])
        return self.o(batch.attention[self._window].attend(query, kv).flatten(1))


class Mlp:
    """A gated feed-forward part."""

    def __init__(self, config: ModelConfig, storage: Storage) -> None:
        names, has_bias, size = config.names, config.flags.has_mlp_bias, config.intermediate_size
        self.gate_up = Linear(config.hidden_size, {names["gate"]: size, names["up"]: size}, has_bias=has_bias, storage=storage)
        self.down = Linear(size, {names["down"]: config.hidden_size}, has_bias=has_bias, storage=storage)
        self._activation = GATED_ACTIVATIONS[config.activation]

    def places(self) -> Places:
        return {**self.gate_up.places(), **self.down.places()}

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self._activation(self.gate_up(x)))


class Block:
    """One layer; adds to the residual stream in place."""

    def __init__(self, config: ModelConfig, window: int | None, rotary: Rotary, storage: Storage) -> None:
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps, storage)
        self.attention = Attention(config, window, rotary, storage)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps, storage)
        self.mlp = Mlp(config, storage)
        self._names = config.names

    def places(self) -> Places:
        norms = {self._names["attention_norm"]: self.attention_norm.places(), self._names["mlp_norm"]: self.mlp_norm.places()}
        return {**self.attention.places(), **self.mlp.places(), **_named(norms)}

    def __call__(self, x: Tensor, batch: ForwardBatch, tables: Tables, kv: Tensor) -> None:
        x.add_(self.attention(self.attention_norm(x), batch, tables, kv))
        x.add_(self.mlp(self.mlp_norm(x)))


class Decoder:
    """The whole model. Its tensors are empty until `ramet.models.load.load_weights` has filled them."""

    def __init__(self, config: ModelConfig, storage: Storage) -> None:
        self.config = config
        self.rotary = Rotary(config.rope, storage.dtype, storage.device)
        self.embedding = Embedding(config.vocab_size, config.hidden_size, storage, is_head=config.is_head_tied)
        self.blocks = [Block(config, window, self.rotary, storage) for window in config.windows]
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, storage)
        self.head: Linear | None = None
        if not config.is_head_tied:
            # A file of four-bit weights often keeps its head in more bits, so that asking for int4 does not ask it of the head.
            head_storage = replace(storage, packed_weights="auto") if storage.packed_weights == "int4" else storage
            self.head = Linear(config.hidden_size, {config.names["head"]: config.vocab_size}, has_bias=False, storage=head_storage)

    def places(self) -> Places:
        """Name in the checkpoint to the place of that tensor."""
        names = self.config.names
        below = {names["embedding"]: self.embedding.places(), names["norm"]: self.norm.places()}
        below |= {names["block"].format(layer=layer): block.places() for layer, block in enumerate(self.blocks)}
        return {**_named(below), **(self.head.places() if self.head is not None else {})}

    def __call__(self, batch: ForwardBatch, kv: Sequence[Tensor]) -> Tensor:
        """Logits [num_logits, vocab_size] in the model's dtype. Writes the batch's slots of each layer's pool `kv`."""
        x = self.embedding(batch.token_ids)
        tables = self.rotary.tables(batch.positions)
        for block, layer_kv in zip(self.blocks, kv, strict=True):
            block(x, batch, tables, layer_kv)
        if batch.logit_indices is not None:
            x = x.index_select(0, batch.logit_indices)
        x = self.norm(x)
        return self.embedding.logits(x) if self.head is None else self.head(x)


def _named(below: Mapping[str, Places]) -> dict[str, Place]:
    """Places under the names of the parts they belong to."""
    return {f"{part}.{name}": place for part, places in below.items() for name, place in places.items()}
