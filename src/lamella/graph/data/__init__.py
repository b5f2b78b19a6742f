"""Where the data of variables lie: tensor files (`.dat`) and `.safetensors` files, read without trust."""

from __future__ import annotations

from lamella.graph.data.dat import DatItem, Stored, decode_dat, encode_dat, read_dat, write_dat
from lamella.graph.data.safetensors import (
    SafetensorsContent,
    decode_store,
    read_safetensors,
    write_safetensors,
)
from lamella.graph.data.weights import FoundWeights, read_weights, write_weights

__all__ = [
    "DatItem",
    "FoundWeights",
    "SafetensorsContent",
    "Stored",
    "decode_dat",
    "decode_store",
    "encode_dat",
    "read_dat",
    "read_safetensors",
    "read_weights",
    "write_dat",
    "write_safetensors",
    "write_weights",
]
