"""The hub: the composed graph, how it is built, rewritten and verified."""
