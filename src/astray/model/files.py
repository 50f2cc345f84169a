"""One safetensors file a model, versioned, without pickle: the container, and the parts that models are made of."""

from astray.model.container import VERSION, FilePath, ModelFile, pack_text, read, write
from astray.model.values import configured, plain, restore

__all__ = ["VERSION", "FilePath", "ModelFile", "configured", "pack_text", "plain", "read", "restore", "write"]
