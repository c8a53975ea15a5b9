"""Making an encoder's graph node by node: what the graphs of both encoders have in common.

Weights are names only, so a file is a few kilobytes: the encoder hands them over when it loads. Matrix products and
what comes out of a graph are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

LAYERS, WIDTH, INNER, HEADS, PLACES = 6, 384, 1536, 12, 512
EPSILON = 1e-12


class Builder:
    """Nodes and weights, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.known: set[str] = set()

    def node(self, kind: str, inputs: list[str], *, domain: str = "", **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], domain=domain, **attributes))
        return out

    def contrib(self, kind: str, inputs: list[str], **attributes: object) -> str:
        return self.node(kind, inputs, domain="com.microsoft", **attributes)

    def once(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """The node, or the one that already does the same."""
        for node in self.nodes:
            if node.op_type == kind and list(node.input) == inputs:
                return str(node.output[0])
        return self.node(kind, inputs, **attributes)

    def constant(self, values: list[int]) -> str:
        return self._kept("c" + "_".join(map(str, values)), TensorProto.INT64, [len(values)], values)

    def scalar(self, value: float, kind: int = TensorProto.FLOAT) -> str:
        return self._kept(self.scalar_name(value, kind), kind, [], [value])

    def scalar_name(self, value: float, kind: int) -> str:
        return f"s{kind}_{value}"

    def _kept(self, name: str, kind: int, shape: list[int], values: list[Any]) -> str:
        if name not in self.known:
            self.known.add(name)
            self.weights.append(helper.make_tensor(name, kind, shape, values))
        return name

    def weight(self, name: str, kind: int, shape: list[int]) -> str:
        """A weight that is elsewhere. onnxruntime wants a place for it even though it is handed over in memory."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.weights.append(tensor)
        return name

    def vector(self, name: str, size: int = WIDTH) -> str:
        return self.weight(name, TensorProto.FLOAT, [size])

    def skip_norm(self, x: str, skip: str, name: str) -> str:
        inputs = [x, skip, self.vector(name + ".gamma"), self.vector(name + ".beta")]
        return self.contrib("SkipLayerNormalization", inputs, epsilon=EPSILON)

    def save(self, path: Path, outputs: Sequence[tuple[str, Sequence[str | int]]]) -> None:
        """Write the graph, whose outputs are floats of these shapes."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in ("ids", "mask")
        ]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
        model = helper.make_model(
            helper.make_graph(self.nodes, "encoder", inputs, ends, self.weights),
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
            ir_version=8,
        )
        path.write_bytes(model.SerializeToString())
