"""A type checker for jaxtyping's import hook: shapes of arguments and results of pure functions, in tests only.

Importing this module installs the hook for the pure modules of the policy that nothing has imported before.
typeguard's decorator reads annotations as source code and trips over shape strings; this one looks at the objects.
"""

import functools
import inspect

from jaxtyping import AbstractArray, install_import_hook


def checked(function):
    """Check every argument annotated as an array, and the result, of each call against its annotation."""
    signature = inspect.signature(function)
    hints = {
        name: hint
        for name, hint in function.__annotations__.items()
        if isinstance(hint, type) and issubclass(hint, AbstractArray)
    }

    def check(name, value):
        if name in hints and not isinstance(value, hints[name]):
            seen = f"{tuple(value.shape)} {value.dtype}" if hasattr(value, "shape") else repr(value)
            raise TypeError(f"{function.__qualname__}: {name} is {seen}, wanted {hints[name].__name__}")

    @functools.wraps(function)
    def call(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check(name, value)
        result = function(*args, **kwargs)
        check("return", result)
        return result

    return call


install_import_hook(["policy.gae", "policy.advantages", "policy.objective", "prm.credit"], "shape_checks.checked")
