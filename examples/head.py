"""A layered graphical model as the head of a neural network, trained together, on scikit-learn's digits.

    python examples/head.py

A small convolutional network makes 32 features of an image. They enter a model of two more layers either as soft
evidence (probabilities that its first layer was observed with) or as unaries (log-odds of nodes that stay free). A
linear layer on the same features stands beside them. All three are trained from the same start, in seconds on one core.
"""

import argparse

import torch
from torch import nn

import torchlgm as lgm
from torchlgm import data
from torchlgm.interop import Head

FEATURES, HIDDEN = 32, 24


def body() -> nn.Module:
    """Images `(B, 1, 8, 8)` -> features `(B, 32)`."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, FEATURES),
    )


def lgm_head(entering: str) -> Head:
    graph = lgm.Graph(
        [lgm.Layer("features", FEATURES), lgm.Layer("hidden", HIDDEN), lgm.Layer("digit", 1, labels=10)],
        [lgm.Dense("features", "hidden"), lgm.Dense("hidden", "digit")],
    )
    model = lgm.LGM(graph, lgm.Init(0.3, scale="energy"))
    return Head(lgm.Posterior(model, lgm.lbp(iterations=1)), entering)


HEADS = {
    "linear layer": lambda: nn.Sequential(nn.Linear(FEATURES, 10), nn.LogSoftmax(-1)),
    "LGM, soft evidence": lambda: lgm_head("evidence"),
    "LGM, unaries": lambda: lgm_head("unary"),
}


def train(network: nn.Module, part: data.Data, epochs: int, batch: int = 50) -> float:
    """The loss of the last epoch."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    total = 0.0
    for epoch in range(epochs):
        order = torch.randperm(len(part), generator=torch.Generator().manual_seed(epoch))
        total = 0.0
        for index in order.split(batch):
            log_probs = network(part.inputs[index])
            loss = nn.functional.nll_loss(log_probs, part.targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(index)
    return total / len(part)


@torch.no_grad()
def accuracy(network: nn.Module, part: data.Data) -> float:
    return (network(part.inputs).argmax(-1) == part.targets).double().mean().item()


def main(epochs: int = 8) -> dict[str, float]:
    """Test accuracy by kind of head."""
    digits = data.load("digits")
    found = {}
    for name, make in HEADS.items():
        torch.manual_seed(0)
        network = nn.Sequential(body(), make())
        loss = train(network, digits.train, epochs)
        found[name] = accuracy(network, digits.test)
        print(f"{name:<20} training loss {loss:.3f}, test accuracy {found[name]:.3f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Heads of a network on digits: a linear layer and two models.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the data [default: 8]")
    main(parser.parse_args().epochs)
