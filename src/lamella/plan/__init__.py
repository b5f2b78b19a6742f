"""Working on plans: order, hazards, memory, timing, binding and the passes from NEM to NEM."""
