"""An emulated GPU: PTX is read and run thread by thread in NumPy, behind the functions of NVIDIA's driver.

It judges what is written for GPUs on any machine: numbers, out-of-bounds and misaligned accesses, missing barriers,
waits that come too early or never. Warps of a block are scheduled in turn, each as far as it comes. What a thread may
see late, it sees as late as PTX allows.
"""
