"""Hugging Face folders as values and weights of a model: config, tensors, and the mapping between the two."""

from __future__ import annotations

from lamella.bridge.hf_to_module.checkpoint import Checkpoint, CheckpointTensor
from lamella.bridge.hf_to_module.config import ReadConfig, find_architecture, read_config, text_of
from lamella.bridge.hf_to_module.folder import Folder, is_gguf, is_model_folder, open_folder
from lamella.bridge.hf_to_module.gguf import open_gguf_tokenizer
from lamella.bridge.hf_to_module.mapping import ImportPlan, plan_import
from lamella.bridge.hf_to_module.weights import (
    MappingContext,
    StoredWeights,
    Weight,
    WeightImport,
    skeleton_of,
)

__all__ = [
    "Checkpoint",
    "CheckpointTensor",
    "Folder",
    "ImportPlan",
    "MappingContext",
    "ReadConfig",
    "StoredWeights",
    "Weight",
    "WeightImport",
    "find_architecture",
    "is_gguf",
    "is_model_folder",
    "open_folder",
    "open_gguf_tokenizer",
    "plan_import",
    "read_config",
    "skeleton_of",
    "text_of",
]
