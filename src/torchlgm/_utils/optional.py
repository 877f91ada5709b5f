"""Optional libraries, named with the extra that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from torchlgm.errors import MissingExtraError


def import_optional(module: str, extra: str, instead: str = "") -> ModuleType:
    """Import `module`, or say how to install it and what can be done `instead`."""
    try:
        return import_module(module)
    except ImportError as error:
        advice = f"pip install 'torchlgm[{extra}]'" + (f", or {instead}" if instead else "")
        raise MissingExtraError(f"this needs {module} ({error}); {advice}") from error
