"""Laws: what may take the place of one operation, read off the operation and what made its inputs."""

from __future__ import annotations
