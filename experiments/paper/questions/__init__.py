"""What the paper leaves open, answered by small experiments: for each one JSON file, and a table of the report."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from experiments.paper import words
from experiments.paper.clock import Clock
from experiments.paper.jobs import Options
from experiments.paper.questions import full_size, small_size
from experiments.paper.questions.asking import Answer, Question, Row, over_seeds
from torchlgm.errors import DataError


def named(pattern: str) -> list[Question]:
    """Those that have `pattern` in their names."""
    return [question for question in QUESTIONS if fnmatch(question.name, f"*{pattern.lower()}*")]


def answer(out: Path, options: Options, tell: Callable[[str], None], pattern: str = "*") -> None:
    """Ask all questions that have `pattern` in their names, as far as they are not answered yet."""
    clock = Clock(options.minutes, options.began)
    for question in named(pattern):
        found = Answer(question, out)
        cases = list(question.ask(options, clock))
        if all(case.is_done(found.rows) for case in cases):
            tell(f"{question.name}: answered already, in {found.path}")
        elif question.heavy and options.where.type == "cpu" and pattern == "*" and not options.quick:
            tell(f"{question.name}: takes long without a GPU; ask for it with --cells {question.name}")
            continue
        else:
            tell(f"{question.name}: {question.title}")
            if left := found.ask(cases, options, clock, tell):
                tell(f"{question.name}: {left} of {len(cases)} parts are left; {options.goes_on}")
                continue
        tell(f"{question.name}: {question.say(found.rows)}")
    if options.quick:
        tell("Asked quickly, with a few steps on a few images: this says nothing about the questions.")


def rows_of(out: Path, question: Question) -> list[Row]:
    """The answer as far as it is known."""
    return Answer(question, out).rows


def section(out: Path) -> str:
    """The answers that are there, for the page of results."""
    found = [Answer(question, out) for question in QUESTIONS]
    parts = [_shown(answer) for answer in found if answer.rows]
    return "\n\n".join(["## What the paper leaves open", *parts]) if parts else ""


def _shown(answer: Answer) -> str:
    try:
        return _in_words(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{answer.path}: figures are missing ({error!r}); delete it and ask again.") from error


def _in_words(answer: Answer) -> str:
    question, rows = answer.question, answer.rows
    how = question.how if isinstance(question.how, str) else question.how(rows)
    shown = question.show(rows)
    keys = list(dict.fromkeys(key for row in shown for key in row))
    lines = ["| " + " | ".join(keys) + " |", "|---" * len(keys) + "|"]
    lines += ["| " + " | ".join(str(row.get(key, "")) for key in keys) + " |" for row in shown]
    said = f"Not answered yet: {words.left(answer.left, 'part')}." if answer.left else question.say(rows)
    return "\n".join([f"### {question.title}", "", how, "", *lines, "", said])


QUESTIONS = (
    Question(
        "gradient",
        "Where is the analytic gradient right?",
        "Cosine of the angle to the gradient of the exact likelihood, and in brackets the ratio of the norms; 20 "
        "samples, one model. With one hidden layer and the input observed the graph of table 3 is a tree, so LBP is "
        "exact there once every node has heard from every other. At T=2 of the sequential schedule the output has "
        "heard from the input, which is all that backpropagation needs; but the hidden nodes have not yet heard back "
        "what the output made of it, and the analytic gradient is made of their beliefs too: these are stale. The "
        "output's belief is exact from T=2 on, all beliefs are from T=3 on. So the paper's reason, approximate "
        "inference, does not hold on this graph at T=5, 8 and 20 (see table 3). On loopy graphs beliefs stay inexact "
        "after any number of iterations.",
        small_size.gradients,
        small_size.gradients_say,
    ),
    Question(
        "training",
        "What does training with the analytic gradient give?",
        "The Dense cells of table 3 as the paper trains them, but for 3 epochs on 12,000 images, one seed.",
        small_size.training,
        small_size.training_says,
    ),
    Question(
        "soft-clamping",
        "How far is the soft-clamped objective from the true expectation?",
        "Digits of 4x4 pixels, 50 hidden nodes, LBP (exact here), test data, one seed. The expectation is over all "
        "65,536 hard inputs.",
        small_size.soft_clamping,
        small_size.soft_clamping_says,
    ),
    Question(
        "iterations",
        "Is it best to test with the iterations of the training?",
        lambda rows: (
            "Local on MNIST in our way, TRW too at a learning rate of 0.01; accuracy on the test data, "
            f"{over_seeds(rows)}, with other T than in training. The paper says that longer or shorter "
            "iteration is worse in general."
        ),
        full_size.iterations,
        full_size.iterations_say,
        heavy=True,
    ),
    Question(
        "choices",
        "What do damping, start and learning rate do?",
        full_size.choices_how,
        full_size.choices,
        full_size.choices_say,
        full_size.choices_shown,
        heavy=True,
    ),
    Question(
        "missing-starts",
        "Which start suits missing inputs?",
        lambda rows: (
            "Three cells of tables 7 and 8 in our way but for start, learning rate and epochs; test accuracy, "
            f"{over_seeds(rows)}, and the worst seed. Tables start with a standard deviation of 0.1 (weak), "
            "0.3 (mild, as in our column of tables 7 and 8) or 1 (strong) at the balanced scale, unaries of the inputs "
            "from the data."
        ),
        full_size.missing_starts,
        full_size.missing_starts_say,
        full_size.missing_starts_shown,
        heavy=True,
    ),
    Question(
        "quantised",
        "Which start and which weights does table 5 amount to?",
        lambda rows: (
            "The paper says neither how energies start nor whether the weights tested are those of the lowest "
            "validation loss, as they are in our tables, or the last. Cells of tables 2 and 5 as the paper, from the "
            "N(0, 1) of our tables and from N(0, 2 / colours), which is the same for two labels; test accuracy with "
            "the best weights and with the last, which are those of 5 epochs later unless a cap came first, "
            f"{over_seeds(rows)}."
        ),
        full_size.quantised,
        full_size.quantised_say,
        full_size.quantised_shown,
        heavy=True,
    ),
    Question(
        "calibration",
        "How well calibrated are LGMs and networks as pixels disappear?",
        lambda rows: (
            "Local models, trained with 10 to 100 % of the pixels visible, no label smoothing, "
            f"{min(row['epochs'] for row in rows)} epochs, {over_seeds(rows)}; test data. Five of ten shares "
            "are shown. The calibration error has 15 bins of equal width."
        ),
        full_size.calibration,
        full_size.calibration_say,
        full_size.calibration_shown,
        heavy=True,
    ),
)
