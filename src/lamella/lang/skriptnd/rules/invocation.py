"""What a call asks of an operator: SKR260 to SKR299."""

from __future__ import annotations
