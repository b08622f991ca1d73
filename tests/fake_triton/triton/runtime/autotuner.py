"""`triton.autotune` and `triton.heuristics`, around functions of `triton.jit`."""

import time

from triton.runtime.jit import KernelInterface


class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None):
        self.kwargs, self.pre_hook = kwargs, pre_hook
        self.num_warps, self.num_stages = num_warps, num_stages
        self.num_ctas, self.maxnreg = num_ctas, maxnreg

    def all_kwargs(self):
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg")
        options = {name: getattr(self, name) for name in names}
        return {**self.kwargs, **{name: v for name, v in options.items() if v is not None}}


class Autotuner(KernelInterface):
    def __init__(self, fn, configs, key):
        self.fn, self.configs, self.keys, self.cache = fn, configs, key, {}
        self.arg_names = fn.arg_names
        self.best_config = None

    def run(self, *args, **kwargs):
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        key = tuple(named[name] for name in self.keys)
        if key not in self.cache:
            times = {}
            for config in self.configs:
                began = time.perf_counter()
                self.fn.run(*args, **kwargs, **config.all_kwargs())
                times[config] = time.perf_counter() - began
            self.cache[key] = min(times, key=times.get)
        self.best_config = config = self.cache[key]
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())


class Heuristics(KernelInterface):
    def __init__(self, fn, values):
        self.fn, self.values, self.arg_names = fn, values, fn.arg_names

    def run(self, *args, **kwargs):
        for name, rule in self.values.items():
            kwargs[name] = rule({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, **kwargs)


def autotune(configs, key, **options):
    return lambda fn: Autotuner(fn, configs, key)


def heuristics(values):
    return lambda fn: Heuristics(fn, values)
