import math
from itertools import combinations

import pytest
import torch
from matplotlib.colors import to_rgba

from helpers.drawings import draw, random_probs
from torchlgm import viz
from torchlgm.errors import DataError
from torchlgm.viz import canvas
from torchlgm.viz.canvas import MISSING


def titles_of(axes):
    """The texts between the images of a sheet."""
    return [text.get_text() for text in axes.texts if text.get_text()]


def hide_first_pixel(images):
    seen = images.clone()
    seen[..., 0, 0] = math.nan
    return seen


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 2, 3), (3, 1, 8, 8), (12, 1, 2, 2)])
def test_filled_images(shape):
    truth = torch.rand(shape)
    seen, filled = hide_first_pixel(truth), torch.rand(shape)
    figure = viz.filled_images(truth, seen, filled, [f"${i}$" for i in range(len(truth))])
    (axes,) = figure.axes
    assert len(axes.images) == 3 * len(truth)
    for sample in range(len(truth)):
        pictures = [torch.tensor(image.get_array().data) for image in axes.images[3 * sample : 3 * sample + 3]]
        for picture, image in ((pictures[0], truth), (pictures[2], filled)):
            assert picture.equal(image[sample].permute(1, 2, 0).expand(-1, -1, 3))
        assert pictures[1][0, 0].tolist() == list(MISSING)
        assert pictures[1].flatten(0, 1)[1:].equal(pictures[0].flatten(0, 1)[1:])
    said = titles_of(axes)
    assert [text for text in said if "$" in text] == [f"${i}$" for i in range(len(truth))]
    assert [said.count(label) for label in ("truth", "seen", "believed")] == [math.ceil(len(truth) / 5)] * 3
    missing = 1 / (shape[2] * shape[3])
    assert f"{missing:.0%}" in figure.get_suptitle()
    draw(figure)


def test_wrong_samples_have_a_frame():
    truth = torch.rand(3, 1, 2, 2)
    figure = viz.filled_images(truth, truth, truth, right=torch.tensor([True, False, True]))
    (axes,) = figure.axes
    framed = [to_rgba(canvas.AGAINST) == patch.get_edgecolor() for patch in axes.patches]
    assert framed == [False] * 3 + [True] * 3 + [False] * 3
    assert "2 of 3 classes right" in figure.get_suptitle()
    with pytest.raises(DataError, match="right: expected 3 values, one for each sample, got 2"):
        viz.filled_images(truth, truth, truth, right=[True, False])


def test_sheets_do_not_overlap():
    """Twelve samples take three blocks of rows; each picture has a place of its own."""
    truth = torch.rand(12, 1, 4, 6)
    (axes,) = viz.filled_images(truth, truth, truth).axes
    places = [image.get_window_extent().padded(-0.5) for image in axes.images]
    assert not any(one.overlaps(other) for one, other in combinations(places, 2))


def test_image_rows_have_their_names():
    images = torch.rand(11, 1, 3, 2)
    noisy = hide_first_pixel(images)
    figure = viz.image_rows({"clean": images, "$noisy$": noisy}, range(11))
    (axes,) = figure.axes
    assert len(axes.images) == 22
    assert axes.images[1].get_array().data[0, 0].tolist() == list(MISSING)
    assert [titles_of(axes).count(name) for name in ("clean", "$noisy$")] == [3, 3]
    draw(figure)


@pytest.mark.parametrize("rows", [{}, {"a": torch.rand(1, 1, 2, 2), "b": torch.rand(2, 1, 2, 2)}])
def test_bad_image_rows(rows):
    with pytest.raises(DataError, match="rows: expected at least one, all of one shape"):
        viz.image_rows(rows)


def test_missing_colour_is_far_from_gray():
    levels = torch.linspace(0, 1, 256)[:, None].expand(-1, 3)
    assert (levels - torch.tensor(MISSING)).norm(dim=1).min() > 0.2


def test_a_pixel_with_one_missing_channel_is_missing():
    truth = torch.rand(1, 3, 1, 2)
    seen = truth.clone()
    seen[0, 1, 0, 0] = math.nan
    (axes,) = viz.filled_images(truth, seen, truth).axes
    assert axes.images[1].get_array().data[0, 0].tolist() == list(MISSING)


IMAGES = torch.rand(2, 1, 3, 3)


@pytest.mark.parametrize(
    ("given", "titles", "message"),
    [
        ((IMAGES, IMAGES[:1], IMAGES), None, r"seen: .*\(2, 1, 3, 3\), got \(1, 1, 3, 3\)"),
        ((IMAGES, IMAGES, IMAGES[..., :2]), None, "filled: expected the truth's shape"),
        ((IMAGES[0],) * 3, None, r"\(N, C, H, W\).*\(1, 3, 3\)"),
        ((IMAGES[:0],) * 3, None, "not empty"),
        ((IMAGES.expand(2, 2, 3, 3),) * 3, None, "1 or 3 channels"),
        ((IMAGES * 0 + 16,) * 3, None, r"\[0, 1\], got 16 to 16"),
        ((IMAGES, IMAGES, hide_first_pixel(IMAGES)), None, "filled: expected finite"),
        ((IMAGES,) * 3, ["one"], "titles: expected 2 names, got 1"),
    ],
)
def test_bad_filled_images(given, titles, message):
    with pytest.raises(DataError, match=message):
        viz.filled_images(*given, titles)


@pytest.mark.parametrize(("count", "channels", "classes"), [(1, 1, 2), (4, 3, 10), (1, 1, 1)])
def test_uncertain_samples(count, channels, classes):
    probs, targets = random_probs(count, classes)
    labels = [f"class{i}" for i in range(classes)]
    figure = viz.uncertain_samples(torch.rand(count, channels, 2, 2), probs, targets, labels)
    assert len(figure.axes) == 2 * count
    for sample, bars in enumerate(figure.axes[1::2]):
        assert [bar.get_width() for bar in bars.patches] == probs[sample].tolist()
        assert [text.get_text() for text in bars.get_yticklabels()] == labels
        marked = [bar.get_facecolor() == to_rgba(canvas.TRUTH) for bar in bars.patches]
        assert marked == [label == targets[sample] for label in range(classes)]
        (mark,) = bars.texts
        assert mark.get_text() == "true"
        assert mark.xy == (probs[sample, targets[sample]].item(), targets[sample].item())
    right = (probs.argmax(1) == targets).sum()
    assert f"{right} of {count} right" in figure.get_suptitle()
    heads = [part.get_suptitle() for part in figure.subfigs]
    assert all(head.startswith(f"{labels[i]} (") for i, head in zip(probs.argmax(1), heads, strict=False))
    draw(figure)


def test_of_many_classes_the_likely_ones_and_the_true_one_are_shown():
    probs = torch.arange(1.0, 41)[None] / 820
    figure = viz.uncertain_samples(torch.rand(1, 1, 1, 1), probs, torch.tensor([3]), range(40))
    bars = figure.axes[1]
    assert [text.get_text() for text in bars.get_yticklabels()] == ["3", *map(str, range(31, 40))]
    assert bars.texts[0].xy == (4 / 820, 0)


@pytest.mark.parametrize(
    ("images", "probs", "targets", "classes", "message"),
    [
        (IMAGES, torch.ones(3, 1), torch.zeros(3).long(), ["a"], "images: expected 3, .* got 2"),
        (IMAGES, torch.ones(2, 1), torch.zeros(3).long(), ["a"], r"targets \(N,\)"),
        (IMAGES, torch.ones(2, 1), torch.ones(2).long(), ["a"], r"0\.\.0"),
        (IMAGES, torch.ones(2, 2), torch.zeros(2).long(), ["a", "b"], "summing to 1"),
        (IMAGES, torch.ones(2, 1), torch.zeros(2).long(), ["a", "b"], "expected 1 names, got 2"),
        (IMAGES[0], torch.ones(2, 1), torch.zeros(2).long(), ["a"], r"images: expected \(N, C, H, W\)"),
    ],
)
def test_bad_uncertain_samples(images, probs, targets, classes, message):
    with pytest.raises(DataError, match=message):
        viz.uncertain_samples(images, probs, targets, classes)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 2), (30, 4, 4)])
def test_hidden_responses(shape):
    fields = torch.randn(shape)
    figure = viz.hidden_responses(fields.requires_grad_(), [f"node {i}" for i in range(shape[0])])
    axes, scale = figure.axes
    assert [image.get_array().tolist() for image in axes.images] == fields.tolist()
    limit = fields.double().abs().quantile(0.99).item()
    assert {image.get_clim() for image in axes.images} == {(-limit, limit)}
    assert titles_of(axes) == [f"node {i}" for i in range(shape[0])]
    assert scale.get_ylabel() == "response"
    places = [image.get_window_extent().padded(-0.5) for image in axes.images]
    assert not any(one.overlaps(other) for one, other in combinations(places, 2))
    draw(figure)


def test_responses_of_zero_are_neutral():
    image = viz.hidden_responses(torch.zeros(1, 2, 2)).axes[0].images[0]
    colour = image.cmap(image.norm(0.0))
    assert max(colour[:3]) - min(colour[:3]) < 0.02
    assert min(colour) > 0.9


@pytest.mark.parametrize(
    ("fields", "titles", "message"),
    [
        (torch.ones(2, 2), None, r"fields: expected \(n, H, W\).*\(2, 2\)"),
        (torch.ones(0, 2, 2), None, "not empty"),
        (torch.full((1, 1, 2), math.nan), None, "finite numbers, got 2 others of 2"),
        (torch.ones(2, 2, 2), ["a"], "expected 2 names"),
    ],
)
def test_bad_hidden_responses(fields, titles, message):
    with pytest.raises(DataError, match=message):
        viz.hidden_responses(fields, titles)


@pytest.mark.parametrize(("channels", "classes", "size"), [(1, 10, 4), (3, 2, 3), (1, 1, 1)])
def test_class_evidence(channels, classes, size):
    image = hide_first_pixel(torch.rand(channels, size, size))
    evidence = torch.randn(classes, size, size)
    figure = viz.class_evidence(image, evidence, range(classes))
    axes = figure.axes[0]
    picture, *maps = [each.get_array() for each in axes.images]
    assert picture[0, 0].tolist() == list(MISSING)
    assert [each.tolist() for each in maps] == evidence.tolist()
    limit = evidence.double().abs().quantile(0.99).item()
    assert {each.get_clim() for each in axes.images[1:]} == {(-limit, limit)}
    assert titles_of(axes) == ["image", *map(str, range(classes))]
    draw(figure)
    answer = torch.randn(classes)
    (axes, scale) = viz.class_evidence(image, evidence, range(classes), answer).axes
    assert titles_of(axes) == ["image", *[f"{k} ({answer[k]:+.1f})" for k in range(classes)]]
    assert "nats" in scale.get_ylabel()


@pytest.mark.parametrize(
    ("image", "evidence", "classes", "message"),
    [
        (IMAGES, torch.ones(1, 3, 3), ["a"], r"image: expected \(C, H, W\)"),
        (IMAGES[0], torch.ones(3, 3), ["a"], r"evidence: expected \(K, H, W\)"),
        (IMAGES[0], torch.ones(1, 3, 4), ["a"], r"the image's \(3, 3\) pixels.*\(1, 3, 4\)"),
        (IMAGES[0], torch.ones(2, 3, 3), ["a"], "expected 2 names"),
        (IMAGES[0] + 1, torch.ones(1, 3, 3), ["a"], r"\[0, 1\]"),
    ],
)
def test_bad_class_evidence(image, evidence, classes, message):
    with pytest.raises(DataError, match=message):
        viz.class_evidence(image, evidence, classes)


def test_an_answer_for_each_class():
    with pytest.raises(DataError, match="answer: expected log-odds of 2 classes, got 3"):
        viz.class_evidence(IMAGES[0], torch.ones(2, 3, 3), ["a", "b"], torch.ones(3))
