"""Writes what torch.save writes (zip form, protocol 2) with Python's standard library alone, for tests that have no torch."""
import collections
import io
import pickle
import sys
import types
import zipfile

STORAGES = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2), "I64": ("LongStorage", 8),
            "BOOL": ("BoolStorage", 1)}


def _stand_in(module, name, kind):
    """pickle writes a global by its module and name, and checks that it is there."""
    parent = sys.modules.setdefault(module, types.ModuleType(module))
    made = type(name, (), {}) if kind == "class" else (lambda *_: None)
    made.__module__, made.__qualname__, made.__name__ = module, name, name
    setattr(parent, name, made)
    return made


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, shape, data


def write(path, values):
    """`values`: dicts, lists, numbers, texts and Tensors."""
    for module in ("torch", "torch._utils"):
        sys.modules.setdefault(module, types.ModuleType(module))
    storages = {dtype: _stand_in("torch", name, "class") for dtype, (name, _) in STORAGES.items()}
    rebuild = _stand_in("torch._utils", "_rebuild_tensor_v2", "function")
    blobs = []

    class Storage:
        def __init__(self, tensor):
            self.tensor, self.key = tensor, str(len(blobs))
            blobs.append(tensor.data)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            count = len(value.tensor.data) // STORAGES[value.tensor.dtype][1]
            return ("storage", storages[value.tensor.dtype], value.key, "cpu", count)

        def reducer_override(self, value):
            if not isinstance(value, Tensor):
                return NotImplemented
            stride, strides = 1, []
            for size in reversed(value.shape):
                strides.insert(0, stride)
                stride *= size
            return rebuild, (Storage(value), 0, tuple(value.shape), tuple(strides), False, collections.OrderedDict())

    text = io.BytesIO()
    Pickler(text, protocol=2).dump(values)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", text.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, blob in enumerate(blobs):
            archive.writestr(f"archive/data/{key}", blob)
        archive.writestr("archive/version", "3\n")
