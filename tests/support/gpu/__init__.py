"""A GPU without one: PTX is read, and run thread by thread in NumPy, behind the functions of NVIDIA's driver.

It judges what is written for GPUs on any machine: numbers, accesses outside of memory or across its alignment, barriers
that lack, waits that come too early or never. Warps of a block take turns, each as far as it comes; what a thread may
see late, it sees as late as PTX allows.
"""
