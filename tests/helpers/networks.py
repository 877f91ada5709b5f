"""Small random networks, and the truth about them by plain sums over all labellings."""

import numpy as np

LABELS = (2, 3, 2, 4, 1, 2)
SCOPES = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3, 5), (3, 5), (4, 2, 5), (5,)]

XML = """<?xml version="1.0"?>
<BIF VERSION="0.3"><NETWORK><NAME>some</NAME>
<!-- two variables -->
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>grass</NAME><OUTCOME>dry</OUTCOME><OUTCOME>wet</OUTCOME><OUTCOME>icy</OUTCOME></VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.8 0.2</TABLE></DEFINITION>
<DEFINITION><FOR>grass</FOR><GIVEN>rain</GIVEN><TABLE> 0.9 0.1 0.0 <!-- rain=no --> 0.2 0.7 0.1 </TABLE></DEFINITION>
</NETWORK></BIF>
"""
NET = """net { node_size = (50 50); }
node rain { states = ("no" "yes"); label = "Rain?"; }  % a comment { with a bracket
discrete node grass { states = (dry wet icy); }
potential ( rain ) { data = (0.8 0.2); }
potential ( grass | rain ) { data = (( 0.9 0.1 0.0 )  % rain=no
 ( 0.2 0.7 0.1 )); }
"""


def random_network(seed=0, zeros=0.0, labels=LABELS, scopes=SCOPES):
    rng = np.random.default_rng(seed)
    factors = []
    for scope in scopes:
        shape = [labels[v] for v in scope]
        energies = 2 * rng.standard_normal(shape)
        impossible = rng.random(shape) < zeros
        impossible.reshape(-1)[rng.integers(impossible.size)] = False
        factors.append((scope, np.where(impossible, np.inf, energies)))
    return labels, factors


def joint_of(labels, factors):
    joint = np.zeros(labels)
    for scope, energies in factors:
        order = np.argsort(scope)
        shape = [labels[v] if v in scope else 1 for v in range(len(labels))]
        joint = joint - energies.transpose(order).reshape(shape)
    return np.exp(joint)


def hard(labels, rows, seed=0, share=0.4):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, k, rows) for k in labels], 1)
    return np.where(rng.random(codes.shape) < share, codes, -1)


def conditioned(joint, row, likelihoods=None):
    """Marginals by plain sums over the joint, given labels, -1 = not observed."""
    joint = joint.copy()
    for v, label in enumerate(row):
        shape = [-1 if u == v else 1 for u in range(joint.ndim)]
        if label >= 0:
            joint *= (np.arange(joint.shape[v]) == label).reshape(shape)
        if likelihoods and v in likelihoods:
            joint *= likelihoods[v].reshape(shape)
    total = joint.sum()
    return [joint.sum(tuple(a for a in range(joint.ndim) if a != v)) / total for v in range(joint.ndim)], np.log(total)
