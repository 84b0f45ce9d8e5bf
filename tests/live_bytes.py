"""Bytes of tensors that are alive: what an allocator would count, on a CPU, tensor by tensor."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts every storage that an operation returns until it is freed; ``peak`` is the largest sum so far.

    Args:
        held: tensors that exist already and are counted from the start.
    """

    def __init__(self, *held):
        super().__init__()
        self.now = self.peak = 0
        self._known = set()
        for tensor in held:
            self._add(tensor)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        return out

    def _add(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known or storage.nbytes() == 0:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key, size):
        self._known.discard(key)
        self.now -= size
