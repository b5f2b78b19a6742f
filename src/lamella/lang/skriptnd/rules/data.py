"""Files of variables: SKR340 to SKR369."""

from __future__ import annotations
