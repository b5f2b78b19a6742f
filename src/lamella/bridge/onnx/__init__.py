"""The ONNX format: nodes in its words, the reader and the writer of its files, and its rules."""
