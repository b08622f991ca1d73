"""NVML: what the driver knows of every GPU, through nvidia-ml-py."""
