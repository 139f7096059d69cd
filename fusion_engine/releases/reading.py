"""Which releases of Arm NN read a network as it stands, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from fusion_engine.errors import FuseError
from fusion_engine.network import Network, describe, edges_into
from fusion_engine.releases.facts import Release, releases
from fusion_engine.releases.needs import Obstacle, needs_of
from fusion_engine.validation import MALFORMED, blaming, validate

__all__ = ["Reading", "cautions_of", "loads_in"]


@dataclass(frozen=True)
class Reading:
    """What a release makes of a network.

    Attributes
    ----------
    release
        Its name; later patches with the same format count as the same.
    obstacles
        Why it does not read the network, or not as what it is; empty where it does.
    cautions
        What its users should know even so.
    """

    release: str
    obstacles: tuple[Obstacle, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def loads(self) -> bool:
        """Whether it reads the network as what it is."""
        return not self.obstacles


def loads_in(graph: Network, *, written: bool = False) -> tuple[Reading, ...]:
    """What every release of Arm NN makes of a network as it stands.

    It is about files and readers, not about backends: a layer that no backend runs loads all the same.
    A file of more than 1,000,000 tables loads nowhere: the FlatBuffers Verifier of every release refuses it.
    What keeps a network from being written at all (`validate` tells) is not looked at.

    Parameters
    ----------
    graph
        The network.
    written
        Look at the file that `save` writes, not at the one that the network was loaded from: constants
        without their payload's type, which no release reads, get it when they are written, layers without
        a name an empty one, and all an order in which readers find them.

    Returns
    -------
    tuple of Reading
        One per release, oldest first.

    Raises
    ------
    FuseError
        Where what is given is no network.
    ModelError
        Where the network is not as `validate` wants it and so cannot be looked at.

    Examples
    --------
    >>> import fusion_engine as fe
    >>> graph = fe.load("examples/models/mobilenet-20.08.armnn")
    >>> [reading.release for reading in fe.loads_in(graph) if reading.loads][:3]
    ['20.02', '20.05', '20.08']
    """
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise FuseError(f"a network is a networkx.DiGraph, not {type(graph).__name__}: load one with load()")
    with blaming(graph, "cannot be held against releases"):
        needs, size = needs_of(graph), _size_of(graph)
        return tuple(
            Reading(release.name, needs.obstacles(release, written=written) + size, cautions_of(graph, release))
            for release in releases()
        )


def _size_of(graph: Network) -> tuple[Obstacle, ...]:
    """What the Verifier of every release has against a file with so many tables."""
    from fusion_engine.armnn import writer

    most = writer.MOST_TABLES
    try:
        if writer.tables_at_most(graph) <= most or validate(graph) or (tables := writer.count_tables(graph)) <= most:
            return ()
    except MALFORMED:  # what keeps it from being written at all is no matter of releases
        return ()
    return (Obstacle(f"its file has {tables:,} tables, and the reader takes at most {most:,}: split the network"),)


def cautions_of(graph: Network, release: Release) -> tuple[str, ...]:
    """What users of a release should know of a network that it reads."""
    if not release.by_ordinal:
        return ()
    for number, key in enumerate(graph.graph.get("outputs", ())):
        for _, source in edges_into(graph, key):
            if len(graph.nodes[source.layer].get("outputs", ())) <= number:
                return (
                    f"its reader takes the TensorInfo of the Output at position n from output slot n of what feeds "
                    f"it, and {describe(graph, key)} at position {number} is fed by {describe(graph, source.layer)}, "
                    "which has no such slot: builds with assertions abort",
                )
    return ()
