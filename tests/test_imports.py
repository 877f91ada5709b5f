"""The package imports little, and its parts only import what stands below them."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import torchlgm
from helpers.processes import run_code

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HEAVY = ("matplotlib", "sklearn", "pandas", "PIL", "typer", "rich", "pooch", "tensorboard", "scipy")


def test_the_core_imports_nothing_heavy_and_is_silent():
    listing = f"print(*[m for m in {HEAVY} if m in sys.modules])"
    done = run_code(
        f"import sys, warnings; warnings.simplefilter('error'); import torchlgm; torchlgm.LGM; torchlgm.fit; {listing}"
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


def test_no_optional_library_is_needed():
    missing = (*HEAVY, "huggingface_hub", "lightning", "onnx", "onnxruntime", "onnxscript", "tqdm", "triton")
    parts = ", ".join(f"torchlgm.{part}" for part in ("cli.commands", "joint", "interop", "viz"))
    done = run_code(f"import sys; sys.modules.update(dict.fromkeys({missing})); import {parts}")
    assert (done.returncode, done.stderr) == (0, "")


def test_triton_is_not_needed_and_missed_clearly():
    code = """
        import sys
        sys.modules["triton"] = None
        import torch, torchlgm as lgm
        from torchlgm.ops.backend import backend
        model = lgm.LGM(lgm.zoo.dense(3, (2,), 2))
        print(lgm.infer(model, {"inputs": torch.rand(1, 3)}, lgm.trw(2))["classes"].probs.shape)
        with backend("triton"):
            lgm.infer(model, {})
    """
    done = run_code(code)
    assert done.stdout.strip() == "torch.Size([1, 1, 2])", done.stderr
    assert "the package triton is not installed; use backend='auto' or 'eager'" in done.stderr.splitlines()[-1]


def test_a_captured_step_does_not_import_a_compiler():
    """It would take longer than all else in a first step with kernels on disk."""
    code = """
        import sys, torch
        from helpers.tiny_training import bars, posterior
        from torchlgm.learn.cuda.adam import SplitAdam
        from torchlgm.learn.distributed import Group
        from torchlgm.learn.learner import Learner
        from torchlgm.learn.cuda.captured_step import CapturedStep
        from torchlgm.learn.steps import OptimizerStep, PlainStep
        small, data = posterior(0), bars(5)
        update = OptimizerStep(Learner(small), SplitAdam(small.parameters()), Group())
        captured = CapturedStep(PlainStep(update, data.inputs, data.targets), 5)
        captured.plain.begin(torch.arange(5))
        captured.order = captured.plain.order
        captured._work(1)
        print(captured.losses.item() > 0, "sympy" in sys.modules)
    """
    done = run_code(code)
    assert done.stdout.split() == ["True", "False"], done.stderr


DESCRIPTIONS = ["errors.py", *[f"spec/{path.name}" for path in (SOURCE / "torchlgm/spec").glob("*.py")]]


@pytest.mark.parametrize("module", DESCRIPTIONS)
def test_descriptions_need_no_torch(module):
    text = (SOURCE / "torchlgm" / module).read_text()
    assert not re.search(r"^\s*(import|from) (torch|numpy)\b", text, re.MULTILINE)


def test_the_package_knows_nothing_of_experiments_and_benchmarks():
    for path in (SOURCE / "torchlgm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.split(".")[0] for name in names} & {"experiments", "benchmarks"}, path
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert wheel["wheel"]["packages"] == ["src/torchlgm"]


def test_the_import_contracts_hold():
    pytest.importorskip("importlinter")
    done = run_code("import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def test_the_public_names_are_those_of_the_first_page():
    wanted = "Graph Layer Dense Conv Local Sparse LGM Observed MRF Method Beliefs infer energy sample log_prob lbp trw "
    assert set((wanted + "mean_field exact bracket zoo LGMError").split()) <= set(dir(torchlgm))
    assert len(dir(torchlgm)) < 50
    assert all(getattr(torchlgm, name) is not None for name in dir(torchlgm))


def test_what_is_imported_lazily_is_what_type_checkers_see():
    tree = ast.parse((SOURCE / "torchlgm/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == torchlgm._HOMES
    assert all(alias.asname == alias.name for node in imports for alias in node.names)


def test_the_package_waits_for_the_first_use_before_it_imports_torch():
    done = run_code("import sys, torchlgm; print('torch' in sys.modules); torchlgm.LGM; print('torch' in sys.modules)")
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_a_star_import_has_the_public_names():
    done = run_code("from torchlgm import *; print(LGM.__name__, zoo.__name__)")
    assert done.stdout.split() == ["LGM", "torchlgm.spec.zoo"], done.stderr


def test_further_modules_are_there_when_asked_for():
    code = """
        import sys
        import torchlgm as lgm
        further = ("baselines", "interop", "joint", "metrics", "viz")
        print([name for name in further if f"torchlgm.{name}" in sys.modules])
        print(lgm.metrics.evaluate.__name__, lgm.viz.__name__, {*further, "LGMClassifier"} <= {*dir(lgm)})
        print(hasattr(lgm, "nosuch"))
    """
    done = run_code(code)
    assert done.stdout.splitlines() == ["[]", "evaluate torchlgm.viz True", "False"]


def test_the_list_of_names_has_no_classifier_without_scikit_learn(without):
    assert "LGMClassifier" in dir(torchlgm)
    without("sklearn")
    assert "LGMClassifier" not in dir(torchlgm)
    assert "viz" in dir(torchlgm)
