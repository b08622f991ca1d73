"""What a function of `triton.jit` was compiled to, which can be launched by itself."""


class CompiledKernel:
    def __init__(self, function, options):
        self.name = function.__name__
        self._function, self._options = function, options

    def __getitem__(self, grid):
        return lambda *args: self._function.launch(args, self._options, grid)
