"""The ONNX format for the commands and the API: check, show, load, write."""
