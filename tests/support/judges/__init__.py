"""What judges the operators: the call of one operator, what torch, onnxruntime and NumPy say, and who judged what."""
