"""ONNX files in the pipeline."""
