"""The version of this gpuadvisor, for whoever tells it or writes it into a file."""

__version__ = "0.1.0"
