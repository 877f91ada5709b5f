"""Build hook: a wheel made where there is a C compiler carries the compiled kernels for kinds of its processor."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILER = Path(__file__).with_name("src") / "torchlgm" / "ops" / "native" / "compiler.py"


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        spec = importlib.util.spec_from_file_location("compiler", COMPILER)
        assert spec is not None
        assert spec.loader is not None
        compiler = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compiler)
        folder = Path(self.root) / "build" / "kernels"
        try:
            names = compiler.compile_for_package(folder)
        except compiler.NoLibrary as error:
            self.app.display_warning(f"the wheel carries no compiled kernels: {error}")
            return
        if names:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["force_include"] |= {
                str(folder / name): f"torchlgm/ops/native/compiled/{name}" for name in names
            }
