"""Sections beside the program: resources, the tokenizer manifest, the orchestrator's plan."""
