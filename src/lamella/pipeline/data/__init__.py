"""Files of numbers, for the commands: tensor files (.dat) and .safetensors files."""
