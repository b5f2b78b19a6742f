"""Regions of a kernel as blocks of LLVM text: loops, branches with masks, subgroups between barriers."""
