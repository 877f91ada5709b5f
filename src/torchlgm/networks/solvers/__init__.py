"""How the questions about a network are answered; every solver has the shape of `base.Solver`.

`elimination` is exact: each row by itself in C (`ByRow`), or all rows at once (`ByTree`, by way of `junction` and
`passes`); `counts` gives its answers gradients. `loopy` passes messages on the layered model that `layered` makes.
`clusters` is in between, for rows too wide to be exact, and compares two answers.
"""
