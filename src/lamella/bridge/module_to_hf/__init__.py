"""Models as Hugging Face folders: what `hf_to_module` reads, written again."""

from __future__ import annotations

from lamella.bridge.module_to_hf.config import write_config
from lamella.bridge.module_to_hf.folder import Export, export_folder
from lamella.bridge.module_to_hf.tensors import ExportPlan, Mapped, plan_export

__all__ = ["Export", "ExportPlan", "Mapped", "export_folder", "plan_export", "write_config"]
