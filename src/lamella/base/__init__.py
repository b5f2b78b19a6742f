"""The ground every other package stands on: text and bytes with positions, findings, limits, element types."""
