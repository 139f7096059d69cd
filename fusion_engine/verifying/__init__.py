"""Verification: what fusing changed, run before and after.

Needs the extra ``verify`` (onnx, onnxruntime), which is imported when something is run. Modules:
`onnxgraph` (a model under construction), `layer`, `weighted`, `elementwise`, `moving`, `reducing`,
`expressions` (each layer type in ONNX operators), `pairing` and `regions` (what is compared), `trials`,
`reach` and `measure` (on which values, how closely), `result` and `check` (`verify`).
"""
