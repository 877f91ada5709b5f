"""Optional libraries, named with the extra that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from torchlgm.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"this needs {module} ({error}); pip install 'torchlgm[{extra}]'") from error
