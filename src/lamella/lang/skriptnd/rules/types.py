"""Types, packs and optional values: SKR070 to SKR119."""

from __future__ import annotations
