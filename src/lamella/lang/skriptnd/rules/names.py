"""Names, modules and imports: SKR030 to SKR069."""

from __future__ import annotations
