"""Pages of documentation run: block after block in one namespace for each page.

Every ```python block runs, ```python skip does not. An expression with a comment that begins with a shape, such as
`# (5, 10)`, has that shape. An ```output block is what the block above it printed; in an ```output about block, for
results of a training, numbers may be off by a tenth of their size, or by 0.05, counts by 1.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SHAPE = re.compile(r"#\s*(\([\d, ]+\))")


class Block(NamedTuple):
    kind: str
    text: str
    line: int  # of the page, counted from 0


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m["kind"].strip(), m["text"], text[: m.start("text")].count("\n")) for m in FENCE.finditer(text)]


def prose_of(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def run_page(page: Path) -> list[str]:
    """Run the blocks of a page in the current folder, and return what each of its Python blocks printed.

    An AssertionError names what is not as the page says.
    """
    outputs = []
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(page):
        if block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                run_block(block, namespace, str(page))
            printed = out.getvalue()
            outputs.append(printed)
        if block.kind in ("output", "output about"):
            same = printed == block.text if block.kind == "output" else is_about(printed, block.text)
            assert same, f"{page.name}, line {block.line + 1}: the block above printed\n{printed}"
    return outputs


def is_about(printed: str, promised: str) -> bool:
    """Whether two texts are the same but for spaces and numbers that are close."""
    if NUMBER.sub("", printed).split() != NUMBER.sub("", promised).split():
        return False
    numbers = zip_longest(NUMBER.findall(printed), NUMBER.findall(promised), fillvalue="nan")
    return all(
        abs(float(one) - float(other)) <= max(0.05 if "." in other else 1, 0.1 * abs(float(other)))
        for one, other in numbers
    )


def run_block(block: Block, namespace: dict[str, Any], where: str) -> None:
    """Statement by statement, so that expressions can be held to the shapes in their comments."""
    lines = block.text.splitlines()
    for statement in ast.parse(block.text).body:
        last = lines[(statement.end_lineno or 1) - 1]
        promised = SHAPE.search(last)
        ast.increment_lineno(statement, block.line)
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), where, "eval", dont_inherit=True), namespace)
            if promised:
                shape = tuple(value.shape)
                assert shape == ast.literal_eval(promised[1]), f"{where}: {last.strip()} but the shape is {shape}"
        else:
            exec(compile(ast.Module([statement], []), where, "exec", dont_inherit=True), namespace)
