"""Layers, connections and windows: what is accepted, what is refused and what the refusal says."""

from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlgm.errors import GraphError
from torchlgm.spec import Conv, Dense, Layer, Local, Sparse, Window

# --- layers


def test_a_shape_is_a_tuple_whatever_it_came_as():
    assert Layer("a", 3).sizes == Layer("a", (3,)).sizes == Layer("a", [3]).sizes == (3,)
    assert Layer("a", 3) == Layer("a", [3])
    assert Layer("a", [2, 3, 4]).nodes == 24
    assert Layer("a", torch.zeros(2, 5).shape).sizes == (2, 5)


@pytest.mark.parametrize("shape", [np.int64(3), np.uint8(3), np.array([3]), (np.int32(3),), torch.tensor([3])])
def test_numpy_and_torch_integers_are_integers(shape):
    layer = Layer("a", shape, np.int16(4))
    assert layer == Layer("a", 3, 4)
    assert [type(n) for n in (*layer.sizes, layer.labels)] == [int, int]


@pytest.mark.parametrize(
    "shape", [0, -1, True, 2.0, "28", None, (), [], (3, 0), (3, 2.0), ((3,),), np.float64(3), np.True_]
)
def test_a_shape_holds_positive_whole_numbers(shape):
    with pytest.raises(GraphError, match=r"layer 'pixels': shape .* must hold positive whole numbers"):
        Layer("pixels", shape)


@pytest.mark.parametrize("labels", [0, 1, -2, True, 2.0, "3", None, np.float32(3)])
def test_a_node_has_at_least_two_labels(labels):
    with pytest.raises(GraphError, match=r"layer 'digit': .* labels; a node needs a whole number >= 2"):
        Layer("digit", 1, labels)


BAD_NAMES = ["a b", "a.b", "-a", "a/b", "ü", "a\n", 3, ["a"]]


@pytest.mark.parametrize("name", ["", None, *BAD_NAMES])
def test_names_of_layers_are_plain(name):
    with pytest.raises(GraphError, match=r"layer name .*: expected letters, digits, '_' and '-', such as 'hidden_1'"):
        Layer(name, 3)


@pytest.mark.parametrize("make", [lambda name: Layer(name, 3), lambda name: Dense("a", "b", name=name)])
def test_names_are_no_keywords(make):
    with pytest.raises(GraphError, match="name 'from' is a keyword of Python; choose another, such as 'from_1'"):
        make("from")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_of_connections_are_plain(name):
    with pytest.raises(GraphError, match=r"connection name .*: expected letters, digits, '_' and '-', such as"):
        Dense("a", "b", name=name)


@pytest.mark.parametrize("name", ["a", "hidden_1", "h-2", "_x", "0", "A" * 80])
def test_plain_names_are_accepted(name):
    assert Layer(name, 1).name == Dense("a", "b", name=name).name == name


# --- connections


def test_a_connection_is_named_after_its_layers():
    assert Dense("a", "b").name == Conv("a", "b", 3).name == Sparse("a", "b", ((0, 0),)).name == "a-b"
    assert Local("a", "b", 3, name="c").name == "c"


@pytest.mark.parametrize("part", [Layer("a", 3), Dense("a", "b"), Conv("a", "b", 3), Local("a", "b", 3)])
def test_parts_are_frozen(part):
    with pytest.raises(FrozenInstanceError):
        part.name = "other"


def test_parts_are_hashable_and_equal_by_value():
    assert len({Layer("a", 3), Layer("a", [3]), Layer("a", np.int64(3)), Layer("a", 3, 3)}) == 2
    assert len({Conv("a", "b", [3, 2], padding=[[1, 0], 2]), Conv("a", "b", (3, 2), padding=((1, 0), 2))}) == 1
    assert Conv("a", "b", 3) != Local("a", "b", 3)
    edges = [(0, 1), (1, 0)]
    same = {Sparse("a", "b", edges), Sparse("a", "b", np.array(edges)), Sparse("a", "b", torch.tensor(edges))}
    assert same == {Sparse("a", "b", ((0, 1), (1, 0)))}


# --- windows


def geometry(left, right, kind=Conv, **numbers):
    return kind("x", "h", **numbers).windows(Layer("x", left), Layer("h", right))


def test_numbers_are_given_once_or_for_each_dimension():
    once = geometry((1, 9, 9), (1, 4, 4), kernel=3, stride=2)
    each = geometry((1, 9, 9), (1, 4, 4), kernel=(3, 3), stride=[2, 2], dilation=np.array([1, 1]), padding=(0, (0, 0)))
    assert once == each == (Window(9, 4, 3, 2, 1, 0, 0),) * 2


def test_padding_is_one_number_or_one_or_two_for_each_dimension():
    assert geometry((1, 5, 5), (1, 5, 5), kernel=3, padding=1)[0][-2:] == (1, 1)
    mixed = geometry((1, 5, 6), (1, 5, 5), kernel=3, padding=(1, (1, 0)))
    assert [w[-2:] for w in mixed] == [(1, 1), (1, 0)]


def test_the_paper_needs_one_sided_padding():
    assert geometry((1, 28, 28), (6, 13, 13), kernel=5, stride=2, padding=((1, 0), (1, 0)))[0].right == 13
    assert geometry((1, 28, 28), (6, 13, 13), kernel=5, stride=2, padding=1)[0].right == 13  # the last cell is not met


@pytest.mark.parametrize("kind", [Conv, Local])
@pytest.mark.parametrize("field", ["kernel", "stride", "dilation"])
@pytest.mark.parametrize(
    "value", [0, -1, 2.0, True, "2", None, (2,), (2, 2, 2), (2, 0), ((1, 1), (1, 1)), np.float64(2)]
)
def test_kernel_stride_and_dilation_are_positive(kind, field, value):
    with pytest.raises(GraphError, match=rf"connection 'x-h': {field}=.*, expected an int >= 1 or 2 of them"):
        geometry((1, 4, 5), (1, 3, 4), kind, **{"kernel": 2, field: value})


@pytest.mark.parametrize(
    "value", [-1, 0.5, True, "1", None, (1,), (1, -1), ((0, 1), (0, -1)), ((0, 1, 2), 0), (((1,),), 0)]
)
def test_padding_is_not_negative(value):
    with pytest.raises(GraphError, match=r"connection 'x-h': padding=.*, expected an int >= 0, or 2 ints or \(before"):
        geometry((1, 4, 5), (1, 3, 4), kernel=2, padding=value)


@pytest.mark.parametrize(
    ("left", "right"), [(3, 3), ((1, 4), (1, 3, 3)), ((1, 2, 2, 2, 2), (1, 1, 1, 1, 1)), ((1, 4, 4), 3), (3, (1, 3))]
)
def test_windows_need_layers_with_the_same_1_to_3_positions(left, right):
    with pytest.raises(GraphError, match=r"same 1 to 3 position dimensions, got 'x' \(.*\) and 'h' \(.*\)"):
        geometry(left, right, kernel=2)


def test_windows_that_do_not_fit_name_the_numbers():
    text = (
        r"connection 'x-h', dimension 1: 7 positions of 'x' with kernel 3, stride 2, dilation 1, padding 1\+0 make 3 "
    )
    with pytest.raises(GraphError, match=text + r"windows, but 'h' has 4 positions"):
        geometry((1, 5, 7), (2, 5, 4), kernel=3, stride=(1, 2), padding=(1, (1, 0)))


def test_a_kernel_larger_than_its_layer_makes_no_window():
    with pytest.raises(GraphError, match=r"2 positions of 'x' with kernel 3, stride 1, dilation 2, .* make 0 windows"):
        geometry((1, 2), (1, 1), kernel=3, dilation=2)


def test_windows_that_lie_in_the_padding_altogether_are_refused():
    with pytest.raises(GraphError, match=r"'x-h' has no edges: in dimension 0 every window lies in the padding 5\+0 "):
        geometry((1, 2), (1, 1), kernel=2, stride=9, padding=((5, 0),))


small = st.integers(1, 4)


@given(small, small, small, small, st.integers(0, 3))
def test_pairs_are_those_of_the_formula(left, right, kernel, stride, before):
    for dilation in (1, 2):
        got = Window(left, right, kernel, stride, dilation, before, 0).pairs()
        expected = []
        for i in range(left):
            for r in range(right):
                k = Fraction(i - r * stride + before, dilation)
                if k.denominator == 1 and 0 <= k < kernel:
                    expected.append((i, r))
        assert sorted(got) == expected
