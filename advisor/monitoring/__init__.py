"""`gpuadvisor.monitor()`: what the GPUs did during a block of a program."""
