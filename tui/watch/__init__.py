"""`gpuadvisor watch`: the GPUs of this machine, or of a recording, on a terminal."""
